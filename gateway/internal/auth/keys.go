package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vitistack/stack/gateway/internal/filewatch"
)

// apiKey is an API key. The gateway knows only its hash.
type apiKey struct {
	name   string
	hash   [sha256.Size]byte
	scopes Scopes
	// namespaces are the namespaces that the key is limited to, or nil for the whole installation.
	namespaces []string
}

// minKeyLength is the least number of characters of a key.
const minKeyLength = 16

// namespacesPrefix begins the word of a line that limits its key to namespaces.
const namespacesPrefix = "namespaces="

// parseKey parses a line of auth.keys: name sha256:HEX scope+scope namespaces=a+b. The default scope is read; without
// namespaces the key is for the whole installation. A single word is a key in plain text, which has every scope; plain reports
// that. position is the index of the line, for messages.
func parseKey(line string, position int) (key apiKey, plain bool, err error) {
	words := strings.Fields(line)
	if len(words) == 1 {
		if len(line) < minKeyLength {
			return apiKey{}, false, fmt.Errorf("key %d is too short: use gateway hash-key to make one", position+1)
		}
		return apiKey{name: fmt.Sprintf("key-%d", position+1), hash: sha256.Sum256([]byte(words[0])), scopes: ScopeRead | ScopeWrite}, true, nil
	}
	if len(words) < 2 || len(words) > 4 || !strings.HasPrefix(words[1], "sha256:") {
		return apiKey{}, false, fmt.Errorf("key %d: write name sha256:HEX scope+scope namespaces=a+b", position+1)
	}
	decoded, err := hex.DecodeString(strings.TrimPrefix(words[1], "sha256:"))
	if err != nil || len(decoded) != sha256.Size {
		return apiKey{}, false, fmt.Errorf("key %s: write 64 hex digits after the prefix sha256", words[0])
	}
	key = apiKey{name: words[0], hash: [sha256.Size]byte(decoded), scopes: ScopeRead}
	rest := words[2:]
	if len(rest) > 0 && strings.HasPrefix(rest[len(rest)-1], namespacesPrefix) {
		if key.namespaces, err = parseNamespaces(strings.TrimPrefix(rest[len(rest)-1], namespacesPrefix)); err != nil {
			return apiKey{}, false, fmt.Errorf("key %s: %w", words[0], err)
		}
		rest = rest[:len(rest)-1]
	}
	if len(rest) > 1 {
		return apiKey{}, false, fmt.Errorf("key %s: %q is no list of namespaces: write namespaces=a+b", words[0], rest[1])
	}
	if len(rest) == 1 {
		if key.scopes, err = parseScopes(strings.Split(rest[0], "+")); err != nil {
			return apiKey{}, false, fmt.Errorf("key %s: %w", words[0], err)
		}
	}
	return key, false, nil
}

// parseNamespaces parses names of namespaces that are separated by +, and returns them sorted.
func parseNamespaces(text string) ([]string, error) {
	names := strings.Split(text, "+")
	for _, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("%q is no name of a namespace: write namespaces=a+b", name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// keyring holds the current API keys.
type keyring struct{ keys atomic.Pointer[[]apiKey] }

// find returns the key with this text.
func (k *keyring) find(text string) (apiKey, bool) { return k.findHash(sha256.Sum256([]byte(text))) }

// findHash returns the key with this hash. It compares every key, so that its time reveals nothing.
func (k *keyring) findHash(hash [sha256.Size]byte) (apiKey, bool) {
	var found apiKey
	ok := 0
	for _, key := range *k.keys.Load() {
		if subtle.ConstantTimeCompare(hash[:], key.hash[:]) == 1 {
			found, ok = key, 1
		}
	}
	return found, ok == 1
}

// hasLimited reports whether a key is limited to namespaces.
func (k *keyring) hasLimited() bool {
	return slices.ContainsFunc(*k.keys.Load(), func(key apiKey) bool { return key.namespaces != nil })
}

// load replaces the keys by those of the configuration and those of a file. An invalid line is an error and changes nothing.
func (k *keyring) load(configured []string, file []byte, log *slog.Logger) error {
	var all []apiKey
	for i, line := range slices.Concat(configured, filewatch.Lines(file)) {
		key, plain, err := parseKey(line, i)
		if err != nil {
			return err
		}
		if plain {
			log.Warn("API key is configured in plain text: use the hashed line printed by gateway hash-key", "key", key.name)
		}
		all = append(all, key)
	}
	k.keys.Store(&all)
	if k.hasLimited() {
		log.Info("An API key is limited to namespaces, so /metrics, which names all of them, needs a key without namespaces")
	}
	return nil
}
