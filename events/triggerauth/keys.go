package triggerauth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// keysLast is how long keys are used before they are read again, because the API server may revoke one.
	keysLast = time.Hour
	// fetchPause is the least time between two requests, however many tokens name unknown keys.
	fetchPause   = 5 * time.Second
	fetchTimeout = 5 * time.Second
	maxKeysBytes = 1 << 20
)

// keySet is the issuer of the API server's tokens and its public keys by their identifiers.
type keySet struct {
	issuer string
	keys   map[string]crypto.PublicKey
	read   time.Time
}

// keySource keeps the API server's keys, and reads them again when a token names an unknown one or they are old.
type keySource struct {
	fetch func(context.Context) (*keySet, error)
	now   func() time.Time

	current atomic.Pointer[keySet]
	mu      sync.Mutex // held during a fetch
	tried   time.Time
	failed  error // the last fetch
}

// find returns the key of an issuer with an identifier.
func (s *keySource) find(ctx context.Context, issuer, id string) (crypto.PublicKey, error) {
	if key, err := s.known(issuer, id); err == nil {
		return key, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := s.known(issuer, id)
	if err == nil {
		return key, nil // another request has fetched it
	}
	if !s.tried.IsZero() && s.now().Sub(s.tried) < fetchPause {
		return nil, cmp.Or(s.failed, err)
	}
	s.tried = s.now()
	// Other requests wait for the keys too, so the fetch continues when this sender hangs up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	set, failed := s.fetch(ctx)
	if s.failed = failed; failed != nil {
		return nil, failed
	}
	set.read = s.now()
	s.current.Store(set)
	return s.known(issuer, id)
}

// known is find without a fetch.
func (s *keySource) known(issuer, id string) (crypto.PublicKey, error) {
	set := s.current.Load()
	if set == nil || s.now().Sub(set.read) > keysLast {
		return nil, ErrUnavailable
	}
	if issuer != set.issuer {
		return nil, fmt.Errorf("the token is issued by %.100q, and this cluster's API server is %q: send a token of this cluster", issuer, set.issuer)
	}
	if key, ok := set.keys[id]; ok {
		return key, nil
	}
	return nil, fmt.Errorf("the API server has no key %.60q: send a token of this cluster", id)
}

// fetchFrom returns a function that reads issuer and keys from the API server. Every ServiceAccount may read them, by
// the ClusterRole system:service-account-issuer-discovery.
func fetchFrom(config *rest.Config) (func(context.Context) (*keySet, error), error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true // the same connection as the function's own client has
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	return func(ctx context.Context) (*keySet, error) {
		var discovery struct {
			Issuer string `json:"issuer"`
		}
		var set struct {
			Keys []jsonWebKey `json:"keys"`
		}
		if err := get(ctx, client, base.JoinPath(".well-known/openid-configuration").String(), &discovery); err != nil {
			return nil, err
		}
		if err := get(ctx, client, base.JoinPath("openid/v1/jwks").String(), &set); err != nil {
			return nil, err
		}
		all := &keySet{issuer: discovery.Issuer, keys: map[string]crypto.PublicKey{}}
		for _, k := range set.Keys {
			if key := k.public(); key != nil {
				all.keys[k.ID] = key
			}
		}
		return all, nil
	}, nil
}

// remedies are what to do about a status.
var remedies = map[int]string{
	http.StatusForbidden: ": bind ClusterRole system:service-account-issuer-discovery to Group system:serviceaccounts",
	http.StatusNotFound:  ": start kube-apiserver with an https URL as --service-account-issuer, or set OIDC_ENABLED to false",
}

func get(ctx context.Context, client *http.Client, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: get %s: %s%s", ErrUnavailable, url, res.Status, remedies[res.StatusCode])
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxKeysBytes)).Decode(into); err != nil {
		return fmt.Errorf("%w: read %s: %w", ErrUnavailable, url, err)
	}
	return nil
}

// jsonWebKey is a public key as RFC 7517 has it.
type jsonWebKey struct {
	ID    string `json:"kid"`
	Curve string `json:"crv"`
	N     number `json:"n"`
	E     number `json:"e"`
	X     number `json:"x"`
	Y     number `json:"y"`
}

// public is the key, or nil for a kind that does not sign tokens of Kubernetes.
func (k jsonWebKey) public() crypto.PublicKey {
	curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Curve]
	switch {
	case len(k.N) > 0 && len(k.E) > 0 && len(k.E) < 5:
		return &rsa.PublicKey{N: new(big.Int).SetBytes(k.N), E: int(new(big.Int).SetBytes(k.E).Int64())}
	case curve != nil:
		size := (curve.Params().BitSize + 7) / 8
		if len(k.X) != size || len(k.Y) != size {
			return nil
		}
		key, err := ecdsa.ParseUncompressedPublicKey(curve, append(append([]byte{4}, k.X...), k.Y...))
		if err != nil {
			return nil
		}
		return key
	}
	return nil
}

// number is one in base64url, without padding.
type number []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *number) UnmarshalText(text []byte) (err error) {
	*n, err = base64.RawURLEncoding.DecodeString(string(text))
	return err
}
