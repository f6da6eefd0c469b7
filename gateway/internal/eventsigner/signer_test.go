package eventsigner

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events/dsse"
)

// memory stores entries as the API server does: a write with an old resource version is a conflict.
type memory struct {
	mu                sync.Mutex
	secret, configMap Entries
	// late is called between a read and the following write.
	late func()
	err  error
	// hangs makes reads of the Secret wait until their context ends.
	hangs bool
}

func (m *memory) read(e *Entries) (Entries, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Entries{Version: e.Version, Data: maps.Clone(e.Data)}, m.err
}

func (m *memory) write(e *Entries, version string, data map[string][]byte) (bool, error) {
	if late := m.late; late != nil {
		m.late = nil
		late()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if version != e.Version {
		return false, m.err
	}
	n, _ := strconv.Atoi(e.Version)
	e.Version = strconv.Itoa(n + 1)
	if e.Data == nil {
		e.Data = map[string][]byte{}
	}
	for name, value := range data {
		if e.Data[name] = value; value == nil {
			delete(e.Data, name)
		}
	}
	return true, m.err
}

func (m *memory) Secret(ctx context.Context) (Entries, error) {
	m.mu.Lock()
	hangs := m.hangs
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return Entries{}, ctx.Err()
	}
	return m.read(&m.secret)
}

func (m *memory) hang(hangs bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hangs = hangs
}

func (m *memory) ConfigMap(context.Context) (Entries, error) { return m.read(&m.configMap) }
func (m *memory) UpdateSecret(_ context.Context, version string, data map[string][]byte) (bool, error) {
	return m.write(&m.secret, version, data)
}
func (m *memory) UpdateConfigMap(_ context.Context, version string, data map[string][]byte) (bool, error) {
	return m.write(&m.configMap, version, data)
}

// accepted verifies an event as functions do.
func (m *memory) accepted(t *testing.T, e event.Event) bool {
	t.Helper()
	var keys []ed25519.PublicKey
	for _, text := range m.configMap.Data {
		key, err := dsse.ParsePublic(text)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return dsse.Verify(e, keys) == nil
}

func signed(t *testing.T, s *Signer) event.Event {
	t.Helper()
	e := event.New()
	e.SetID("1")
	e.SetSource("/x")
	e.SetType("io.vitistack.workorder.approved")
	if err := s.Sign(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRotation empties the Secret, which rotates the key.
func TestRotation(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m := &memory{}
	s := &Signer{Store: m, Now: func() time.Time { return now }}
	first := signed(t, s)
	if !m.accepted(t, first) {
		t.Fatal("the first event is not accepted")
	}
	now = now.Add(time.Minute)
	m.secret.Data = nil
	second := signed(t, s)
	if !m.accepted(t, first) || !m.accepted(t, second) || len(m.configMap.Data) != 2 {
		t.Errorf("after the rotation the old key is accepted: %t, the new one: %t", m.accepted(t, first), m.accepted(t, second))
	}
	now = now.Add(retired)
	signed(t, s)
	if m.accepted(t, first) || !m.accepted(t, second) {
		t.Errorf("an hour later the old key is accepted: %t, the new one: %t", m.accepted(t, first), m.accepted(t, second))
	}
}

// TestReplicas has two gateways create the first key concurrently: both use the same key.
func TestReplicas(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m := &memory{}
	one := &Signer{Store: m, Now: func() time.Time { return now }}
	other := &Signer{Store: m, Now: func() time.Time { return now.Add(time.Second) }}
	m.late = func() { signed(t, other) }
	e := signed(t, one)
	if names := slices.Collect(maps.Keys(m.secret.Data)); len(names) != 1 || len(m.configMap.Data) != 1 || !m.accepted(t, e) {
		t.Errorf("two gateways have created the keys %v, and %d are accepted", names, len(m.configMap.Data))
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := &Signer{Store: &memory{err: errors.New("the API server is away")}, Now: time.Now}
	e := event.New()
	if err := s.Sign(t.Context(), &e); err == nil || e.Extensions()[dsse.Extension] != nil {
		t.Errorf("an event is signed without a key: %v", err)
	}
}

// TestHang has the API server accept requests without an answer. Derived secrets stay the same, and are not waited for.
func TestHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{hangs: true}
		s := &Signer{Store: m, Now: time.Now}
		derive := func() ([]byte, time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			began := time.Now()
			secret, err := s.Derive(ctx, "test", 32)
			return secret, time.Since(began), err
		}
		if _, took, err := derive(); err == nil || took > 3*time.Second {
			t.Errorf("without a key: %v after %s", err, took)
		}
		time.Sleep(readTimeout)
		m.hang(false)
		want, _, err := derive()
		if err != nil {
			t.Fatal(err)
		}
		m.hang(true)
		time.Sleep(2 * fresh)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if got, took, err := derive(); !bytes.Equal(got, want) || took > time.Second {
					t.Errorf("while the API server hangs: %v after %s", err, took)
				}
			})
		}
		all.Wait()
		if _, took, _ := derive(); took > 0 {
			t.Errorf("the next request waits %s for the same read", took)
		}
		time.Sleep(readTimeout + fresh)
		m.hang(false)
		m.secret.Data = nil
		if got, _, err := derive(); err != nil || bytes.Equal(got, want) {
			t.Errorf("a new key is not used at the first request after its creation: %v", err)
		}
	})
}

func TestChanges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(age time.Duration) string { return now.Add(-age).Format(dsse.KeyTime) + dsse.KeySuffix }
	current := at(2 * time.Hour)
	for _, tc := range []struct {
		name, reason string
		kept         []string
		use          string
		add, remove  []string
	}{
		{"First", "no key is accepted yet", nil, current, []string{current}, nil},
		{"Same", "nothing has changed", []string{current}, current, nil, nil},
		{"New", "the earlier key is accepted for an hour", []string{current}, at(0), []string{at(0)}, nil},
		{"Over", "the hour of the earlier key has passed", []string{at(3 * time.Hour), current}, current, nil, []string{at(3 * time.Hour)}},
		{"Restored", "a Secret from a backup has an older key: the newer one is removed after its hour", []string{current, at(time.Minute)}, current, nil, nil},
		{"Foreign", "an invalid key is removed", []string{"rubbish", current}, current, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			kept := map[string][]byte{}
			for _, name := range tc.kept {
				kept[name] = []byte("key")
			}
			var add, remove []string
			for name, text := range changes(kept, tc.use, []byte("key"), now) {
				if text == nil {
					remove = append(remove, name)
				} else {
					add = append(add, name)
				}
			}
			if !slices.Equal(add, tc.add) || !slices.Equal(remove, tc.remove) {
				t.Errorf("%s: adds %v and removes %v, want %v and %v", tc.reason, add, remove, tc.add, tc.remove)
			}
		})
	}
}
