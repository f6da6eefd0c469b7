package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// HashKey is the command gateway hash-key NAME SCOPE+SCOPE NAMESPACE+NAMESPACE. It reads an API key from in, or generates one
// if in is empty, and writes the line for auth.keys to out.
func HashKey(args []string, in io.Reader, out io.Writer) error {
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
		namespaces, err := parseNamespaces(strings.TrimPrefix(args[2], namespacesPrefix))
		if err != nil {
			return err
		}
		granted += " " + namespacesPrefix + strings.Join(namespaces, "+")
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
	if len(key) < minKeyLength {
		return errors.New("the key is too short: it needs 16 characters")
	}
	_, err = fmt.Fprintf(out, "line for auth.keys or auth.keysFile: %s sha256:%x %s\n", name, sha256.Sum256([]byte(key)), granted)
	return err
}
