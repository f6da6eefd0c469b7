// Package redact removes secrets from objects and text, for files that leave the organisation.
//
// It works by three rules, and each alone is enough for most secrets: fields that hold secrets by their
// name are removed, text that looks like a secret is removed, and the values of the Secrets that the
// caller could read are removed wherever they occur.
package redact

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// removed stands for what was removed from a text.
const removed = "(removed)"

// fields are the names of fields that hold secrets, in lower case without - and _.
var fields = []string{
	"userdata", "userdatabase64", "networkdata", "networkdatabase64", "password", "passwd", "token", "tokenid", "tokensecret", "secret", "secretaccesskey", "accesskey",
	"accesskeyid", "sessiontoken", "privatekey", "clientsecret", "clientkey", "clientkeydata", "clientcertificatedata", "apikey", "bearertoken", "authorization", "kubeconfig",
	"talosconfig", "machineconfig", "credentials", "encryptionkey", "secretboxencryptionsecret", "aescbcencryptionsecret", "bootstraptoken", "trustdinfo",
}

// references are fields that name a Secret and are kept, as paths.
var references = []string{"status.secrets.kubeconfig", "status.secrets.talosconfig"}

// identities are names, which may look like a bootstrap token, as paths.
var identities = []string{"metadata.name", "metadata.namespace", "involvedObject.name"}

// annotations are dropped, because they repeat the whole object.
var annotations = []string{"kubectl.kubernetes.io/last-applied-configuration", "vitistack.io/user-data"}

// patterns find secrets by what they look like.
var patterns = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|$)`),
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
	regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`), // a PEM block in base64
	regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), // a bootstrap token
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
}

// prefixed find secrets by the text in front of them, which the first group keeps.
var prefixed = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(\bBearer[ \t]+|\bBasic[ \t]+|PVEAPIToken=)[^\s"',;]+`),
	regexp.MustCompile(`(\b[a-z][a-z0-9+.-]*://)[^\s/@"']+(@)`),
}

// assignment finds secrets by the name that they are assigned to: what is before the name, the name,
// the sign, and the value.
var assignment = regexp.MustCompile(`(?i)(^|[\s"'?&,{(\[\\])([\w.]*(?:password|passwd|secret|token|api[_-]?key|private[_-]?key|access[_-]?key)\w*)` +
	`(\\?["']?[ \t]*[=:][ \t]*\\?["']?)([^\s"',;}{\[\]]+)`)

// removeAssigned removes the value of an assignment. In a message, "Secret: " is the kind.
func removeAssigned(match string) string {
	parts := assignment.FindStringSubmatch(match)
	if parts[2] == "Secret" && strings.TrimSpace(parts[3]) == ":" {
		return match
	}
	return parts[1] + parts[2] + parts[3] + removed
}

// Redactor removes secrets. The zero value knows no values of Secrets.
type Redactor struct {
	values map[string]bool
	// replacer removes the values. It is nil until it is used after another value was added.
	replacer *strings.Replacer
}

// plain are keys of Secrets whose values are no secrets, or words that occur everywhere.
var plain = []string{"ca.crt", "tls.crt", "namespace", "username", "user", "type", "endpoint", "url", "region", "bucket", "host"}

// shortest is the length of the shortest value that is removed wherever it occurs. Shorter ones are
// parts of ordinary words.
const shortest = 6

// AddSecret has the Redactor remove the values of a Secret, which it may have read: as they are, in
// base64, and the long words in them, for example the tokens in a kubeconfig.
func (r *Redactor) AddSecret(data map[string][]byte) {
	for key, value := range data {
		if slices.Contains(plain, key) {
			continue
		}
		r.add(strings.TrimSpace(string(value)))
		for _, word := range words.FindAllString(string(value), -1) {
			if digits.MatchString(word) && letters.MatchString(word) {
				r.add(word)
			}
		}
	}
}

var (
	words   = regexp.MustCompile(`[A-Za-z0-9+/=_.!-]{20,}`)
	digits  = regexp.MustCompile(`[0-9]`)
	letters = regexp.MustCompile(`[A-Za-z]`)
)

func (r *Redactor) add(value string) {
	if len(value) < shortest || strings.Contains(value, "://") {
		return
	}
	if r.values == nil {
		r.values = map[string]bool{}
	}
	r.values[value], r.values[base64.StdEncoding.EncodeToString([]byte(value))] = true, true
	r.replacer = nil
}

// removeValues removes the values of Secrets from a text. A large installation has a hundred thousand of them, which a Replacer finds in one pass.
func (r *Redactor) removeValues(s string) string {
	if r.replacer == nil {
		// The longest first, so that no rest of it stays.
		longest := slices.SortedFunc(maps.Keys(r.values), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
		var pairs []string
		for _, value := range longest {
			pairs = append(pairs, value, removed)
		}
		r.replacer = strings.NewReplacer(pairs...)
	}
	return r.replacer.Replace(s)
}

// Text returns a text without what looks like a secret, and without values of Secrets.
func (r *Redactor) Text(s string) string {
	for _, p := range patterns {
		s = p.ReplaceAllString(s, removed)
	}
	for _, p := range prefixed {
		s = p.ReplaceAllString(s, "${1}"+removed+"${2}")
	}
	s = assignment.ReplaceAllStringFunc(s, removeAssigned)
	return r.removeValues(s)
}

// Object returns a copy of an object without secrets. A Secret has the names of its keys and the sizes
// of their values.
func (r *Redactor) Object(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	kept := u.GetAnnotations()
	for _, name := range annotations {
		delete(kept, name)
	}
	u.SetAnnotations(kept)
	if u.GetKind() == "Secret" {
		for _, field := range []string{"data", "stringData"} {
			if data, ok := u.Object[field].(map[string]any); ok {
				for key, value := range data {
					data[key] = size(value)
				}
			}
		}
		return &unstructured.Unstructured{Object: r.metadata(u)}
	}
	u.Object, _ = r.value(u.Object, "").(map[string]any)
	return u
}

// metadata returns a Secret whose data is redacted already.
func (r *Redactor) metadata(u *unstructured.Unstructured) map[string]any {
	object := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "type": u.Object["type"]}
	object["metadata"], _ = r.value(u.Object["metadata"], "metadata").(map[string]any)
	for _, field := range []string{"data", "stringData"} {
		if data, ok := u.Object[field]; ok {
			object[field] = data
		}
	}
	return object
}

func size(value any) string {
	text := fmt.Sprint(value)
	if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(decoded)
	}
	return fmt.Sprintf("(removed: %d bytes)", len(text))
}

// value returns a copy of a value of JSON without secrets. path is the path of the value.
func (r *Redactor) value(v any, path string) any {
	switch v := v.(type) {
	case map[string]any:
		all := make(map[string]any, len(v))
		secretEnv := isEnv(v)
		for key, value := range v {
			below := strings.TrimPrefix(path+"."+key, ".")
			text, isText := value.(string)
			switch {
			case slices.Contains(identities, below):
				all[key] = value
			case isText && !slices.Contains(references, below) && (isSecretField(key) || secretEnv && key == "value"):
				all[key] = fmt.Sprintf("(removed: %d bytes)", len(text))
			default:
				all[key] = r.value(value, below)
			}
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = r.value(v[i], path)
		}
		return all
	case string:
		return r.Text(v)
	default:
		return v
	}
}

func isSecretField(key string) bool {
	return slices.Contains(fields, strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(key)))
}

// secretName matches the names of environment variables whose values are secrets.
var secretName = regexp.MustCompile(`(?i)password|passwd|secret|token|key|credential|dsn|database_url|redis_url|auth`)

// isEnv reports whether a value is an environment variable with a secret.
func isEnv(v map[string]any) bool {
	name, ok := v["name"].(string)
	_, hasValue := v["value"].(string)
	return ok && hasValue && secretName.MatchString(name)
}
