package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// scopes are what somebody may do.
type scopes uint8

const (
	// scopeRead is to read everything.
	scopeRead scopes = 1 << iota
	// scopeEvents is to send events.
	scopeEvents
	// scopeWrite is to change whatever the gateway lets be changed, events included.
	scopeWrite
)

// has tells whether all of the wanted scopes are there.
func (s scopes) has(wanted scopes) bool {
	if s&scopeWrite != 0 {
		s |= scopeEvents
	}
	return s&wanted == wanted
}

func (s scopes) names() []string {
	var names []string
	for _, known := range []struct {
		scope scopes
		name  string
	}{{scopeRead, "read"}, {scopeWrite, "write"}, {scopeEvents, "events"}} {
		if s.has(known.scope) {
			names = append(names, known.name)
		}
	}
	return names
}

func parseScopes(names []string) (scopes, error) {
	var s scopes
	for _, name := range names {
		switch strings.TrimSpace(name) {
		case "read":
			s |= scopeRead
		case "write":
			s |= scopeWrite
		case "events":
			s |= scopeEvents
		default:
			return 0, fmt.Errorf("scope %q is unknown: write read, write or events", name)
		}
	}
	return s, nil
}

// apiKey is a key of which only the hash is known.
type apiKey struct {
	name   string
	hash   [sha256.Size]byte
	scopes scopes
	// namespaces are those that the key is limited to, or nil.
	namespaces []string
}

// shortestKey is how long a key in clear has to be.
const shortestKey = 16

// namespacesWord begins the word of a key's line that has its namespaces.
const namespacesWord = "namespaces="

// parseKey reads a key: name sha256:HEX scope+scope namespaces=a+b. Scopes that are left out
// are read; without namespaces the key is for the whole installation. A single word is a
// key in clear, which may do everything; clear tells.
func parseKey(line string, place int) (key apiKey, clear bool, err error) {
	words := strings.Fields(line)
	if len(words) == 1 {
		if len(line) < shortestKey {
			return apiKey{}, false, fmt.Errorf("key %d is too short: use gateway hash-key to make one", place+1)
		}
		return apiKey{name: fmt.Sprintf("key-%d", place+1), hash: sha256.Sum256([]byte(words[0])), scopes: scopeRead | scopeWrite}, true, nil
	}
	if len(words) < 2 || len(words) > 4 || !strings.HasPrefix(words[1], "sha256:") {
		return apiKey{}, false, fmt.Errorf("key %d: write name sha256:HEX scope+scope namespaces=a+b", place+1)
	}
	decoded, err := hex.DecodeString(strings.TrimPrefix(words[1], "sha256:"))
	if err != nil || len(decoded) != sha256.Size {
		return apiKey{}, false, fmt.Errorf("key %s: write 64 hex digits after the prefix sha256", words[0])
	}
	key = apiKey{name: words[0], hash: [sha256.Size]byte(decoded), scopes: scopeRead}
	rest := words[2:]
	if len(rest) > 0 && strings.HasPrefix(rest[len(rest)-1], namespacesWord) {
		if key.namespaces, err = parseNamespaces(strings.TrimPrefix(rest[len(rest)-1], namespacesWord)); err != nil {
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

// parseNamespaces reads names of namespaces with + between them, and returns them sorted.
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

// keyring has the keys at present.
type keyring struct{ keys atomic.Pointer[[]apiKey] }

// find returns the key with this text.
func (k *keyring) find(text string) (apiKey, bool) { return k.findHash(sha256.Sum256([]byte(text))) }

// findHash returns the key with this hash. It looks at every key, so that the time
// it takes tells nothing.
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

// limited tells whether a key is limited to namespaces.
func (k *keyring) limited() bool {
	return slices.ContainsFunc(*k.keys.Load(), func(key apiKey) bool { return key.namespaces != nil })
}

// load reads keys, the configured ones first and then a file's lines.
func (k *keyring) load(configured []string, file []byte, log *slog.Logger) error {
	var all []apiKey
	for i, line := range slices.Concat(configured, lines(file)) {
		key, clear, err := parseKey(line, i)
		if err != nil {
			return err
		}
		if clear {
			log.Warn("An API key is configured in clear: use the line that gateway hash-key makes", "key", key.name)
		}
		all = append(all, key)
	}
	k.keys.Store(&all)
	if k.limited() {
		log.Info("A key is limited to namespaces, so metrics, which name them all, need a key without a limit")
	}
	return nil
}

// lines are the lines of a file that are neither empty nor comments.
func lines(content []byte) []string {
	var all []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// fileCheck is between two looks at a file that may change.
const fileCheck = 2 * time.Second

// follow calls load with a file's content whenever it has changed, until ctx
// ends. Content that load refuses is logged, and what was there before stays.
func follow(ctx context.Context, path string, load func([]byte) error, log *slog.Logger) {
	if path == "" {
		return
	}
	last, _ := os.ReadFile(path)
	ticker := time.NewTicker(fileCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		content, err := os.ReadFile(path)
		if err != nil || bytes.Equal(content, last) {
			continue
		}
		last = content
		if err := load(content); err != nil {
			log.Error("Cannot use the changed file, going on with what it had before", "file", path, "error", err.Error())
			continue
		}
		log.Info("Read the changed file", "file", path)
	}
}

// hashKey is the command hash-key: it reads a key from in, or makes one where
// that is empty, and writes the line to configure.
func hashKey(args []string, in io.Reader, out io.Writer) error {
	name, granted := "my-key", "read"
	if len(args) > 0 {
		name = args[0]
	}
	if len(args) > 1 {
		granted = args[1]
	}
	if _, err := parseScopes(strings.Split(granted, "+")); err != nil {
		return err
	}
	if len(args) > 2 {
		namespaces, err := parseNamespaces(strings.TrimPrefix(args[2], namespacesWord))
		if err != nil {
			return err
		}
		granted += " " + namespacesWord + strings.Join(namespaces, "+")
	}
	read, err := io.ReadAll(io.LimitReader(in, 4096))
	if err != nil {
		return fmt.Errorf("read the key: %w", err)
	}
	key := strings.TrimSpace(string(read))
	if key == "" {
		random := make([]byte, 32)
		if _, err := rand.Read(random); err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
		key = "viti_" + base64.RawURLEncoding.EncodeToString(random)
		_, _ = fmt.Fprintf(out, "key, to be kept by its user: %s\n", key)
	}
	if len(key) < shortestKey {
		return errors.New("the key is too short: it needs 16 characters")
	}
	_, err = fmt.Fprintf(out, "line for auth.keys or auth.keysFile: %s sha256:%x %s\n", name, sha256.Sum256([]byte(key)), granted)
	return err
}
