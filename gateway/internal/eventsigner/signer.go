// Package eventsigner signs the events of external systems that the gateway has authenticated, before they go to the Broker. Functions
// verify the signature (functions/internal/gatewaysignature). The private key is in a Secret, which the gateway fills if it is empty;
// the public keys that functions accept are in a ConfigMap. Emptying the Secret rotates the key. The old key is accepted for an hour,
// because Brokers redeliver.
package eventsigner

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events/dsse"
)

const (
	// fresh is the time for which a key is used without reading the Secret again.
	fresh = 10 * time.Second
	// retired is the time for which a key is accepted after the creation of the next one.
	retired = time.Hour
	// readTimeout bounds one read of the keys.
	readTimeout = 10 * time.Second
	// firstWait is the longest wait of Derive for a read without a known key, and refreshWait with one. A read that succeeds in this
	// time takes effect at once, so that a rotation ends sessions.
	firstWait, refreshWait = 2 * time.Second, time.Second / 2
)

// Entries are the contents of a Secret or a ConfigMap.
type Entries struct {
	Version string
	Data    map[string][]byte
}

// Store reads and writes the keys. An update sets entries and removes nil entries; it returns false if the object has changed
// since Version was read. Both Secret and ConfigMap must exist.
type Store interface {
	Secret(ctx context.Context) (Entries, error)
	UpdateSecret(ctx context.Context, version string, data map[string][]byte) (bool, error)
	ConfigMap(ctx context.Context) (Entries, error)
	UpdateConfigMap(ctx context.Context, version string, data map[string][]byte) (bool, error)
}

// Signer signs events. It is safe for concurrent use.
type Signer struct {
	Store Store
	Now   func() time.Time

	mu sync.Mutex
	// key is the last known key, and readAt when it was read.
	key    ed25519.PrivateKey
	readAt time.Time
	// last is the newest read. It may have failed, or not have ended.
	last *read
}

// read is one read of the keys, which all callers share that need it.
type read struct {
	began time.Time
	done  chan struct{}
	// key and err are set before done is closed.
	key ed25519.PrivateKey
	err error
}

// Sign adds a signature to an event. An error means that the keys cannot be read or written at present.
func (s *Signer) Sign(ctx context.Context, e *event.Event) error {
	key, err := s.current(ctx)
	if err != nil {
		return fmt.Errorf("sign event %s: %w", e.ID(), err)
	}
	return dsse.Sign(e, key)
}

// Keys returns the keys that functions accept.
func (s *Signer) Keys(ctx context.Context) ([]ed25519.PublicKey, error) {
	kept, err := s.Store.ConfigMap(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the keys that sign events: %w", err)
	}
	return dsse.ParsePublicKeys(kept.Data), nil
}

// Derive returns a secret of size bytes for a purpose, which is the same for all gateways with this key. While the keys cannot be
// read, it is derived from the last known key, and Derive does not wait for an API server that does not answer.
func (s *Signer) Derive(ctx context.Context, purpose string, size int) ([]byte, error) {
	key, err := s.lastKnown(ctx)
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, key.Seed(), nil, purpose, size)
}

// current returns the key after functions accept it.
func (s *Signer) current(ctx context.Context) (ed25519.PrivateKey, error) {
	s.mu.Lock()
	if s.key != nil && s.Now().Sub(s.readAt) < fresh {
		defer s.mu.Unlock()
		return s.key, nil
	}
	r := s.join()
	s.mu.Unlock()
	return r.wait(ctx)
}

// lastKnown returns the key of the last read that succeeded. It requests another read if the newest one is not fresh, and waits for
// it a short time only.
func (s *Signer) lastKnown(ctx context.Context) (ed25519.PrivateKey, error) {
	s.mu.Lock()
	key, longest := s.key, refreshWait
	if key == nil {
		longest = firstWait
	} else if s.last.hasEnded() && s.Now().Sub(s.last.began) < fresh {
		s.mu.Unlock()
		return key, nil
	}
	r := s.join()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, longest-s.Now().Sub(r.began))
	defer cancel()
	found, err := r.wait(ctx)
	if err != nil && key != nil {
		return key, nil
	}
	return found, err
}

// join returns the read under way, or starts one. The caller holds mu.
func (s *Signer) join() *read {
	if s.last != nil && !s.last.hasEnded() {
		return s.last
	}
	r := &read{began: s.Now(), done: make(chan struct{})}
	s.last = r
	go func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		if r.key, r.err = s.load(ctx); r.err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.key, s.readAt = r.key, s.Now()
	}()
	return r
}

func (r *read) hasEnded() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// wait returns the key that was read, at most until ctx ends.
func (r *read) wait(ctx context.Context) (ed25519.PrivateKey, error) {
	select {
	case <-r.done:
		return r.key, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read the signing key: %w", ctx.Err())
	}
}

// load reads the key, and has functions accept it.
func (s *Signer) load(ctx context.Context) (ed25519.PrivateKey, error) {
	name, key, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	return key, s.publish(ctx, name, key)
}

// attempts bounds the retries of a write that conflicts with another gateway.
const attempts = 5

// find returns the newest key of the Secret, or creates the first key.
func (s *Signer) find(ctx context.Context) (string, ed25519.PrivateKey, error) {
	for range attempts {
		kept, err := s.Store.Secret(ctx)
		if err != nil {
			return "", nil, err
		}
		if name := newest(kept.Data); name != "" {
			key, err := dsse.ParsePrivate(kept.Data[name])
			if err != nil {
				return "", nil, fmt.Errorf("read entry %s of Secret %s: %w: remove the entry, and the gateway generates a new key", name, dsse.SecretName, err)
			}
			return name, key, nil
		}
		key, err := dsse.NewKey()
		if err != nil {
			return "", nil, err
		}
		text, err := dsse.FormatPrivate(key)
		if err != nil {
			return "", nil, err
		}
		name := s.Now().UTC().Format(dsse.KeyTime) + dsse.KeySuffix
		if done, err := s.Store.UpdateSecret(ctx, kept.Version, map[string][]byte{name: text}); err != nil || done {
			return name, key, err
		}
	}
	return "", nil, conflictError(dsse.SecretName)
}

// publish adds a key to the keys that functions accept, and removes expired ones.
func (s *Signer) publish(ctx context.Context, name string, key ed25519.PrivateKey) error {
	text, err := dsse.FormatPublic(key.Public().(ed25519.PublicKey))
	if err != nil {
		return err
	}
	for range attempts {
		kept, err := s.Store.ConfigMap(ctx)
		if err != nil {
			return err
		}
		change := changes(kept.Data, name, text, s.Now())
		if len(change) == 0 {
			return nil
		}
		if done, err := s.Store.UpdateConfigMap(ctx, kept.Version, change); err != nil || done {
			return err
		}
	}
	return conflictError(dsse.ConfigMapName)
}

func conflictError(name string) error {
	return fmt.Errorf("write %s: others have written it %d times meanwhile", name, attempts)
}

// newest returns the name of the newest entry, or nothing.
func newest(data map[string][]byte) string {
	last := ""
	for name := range data {
		if strings.HasSuffix(name, dsse.KeySuffix) {
			last = max(last, name)
		}
	}
	return last
}

// changes returns the updates that leave the key in use and the earlier keys that are not yet retired.
func changes(kept map[string][]byte, name string, text []byte, now time.Time) map[string][]byte {
	change := map[string][]byte{}
	if string(kept[name]) != string(text) {
		change[name] = text
	}
	var names []string
	for other := range kept {
		if other != name {
			names = append(names, other)
		}
	}
	names = append(names, name)
	slices.Sort(names)
	for i, other := range names[:len(names)-1] {
		made, err := time.Parse(dsse.KeyTime+dsse.KeySuffix, names[i+1])
		if other != name && (err != nil || now.Sub(made) >= retired) {
			change[other] = nil
		}
	}
	return change
}
