// Package triggerauth verifies that a request comes from a Trigger of Knative Eventing. Where Knative has authentication-oidc
// enabled, it sends with each delivery a token of a ServiceAccount that it made for the Trigger. Functions and
// the gateway verify the token before they read the event. Its signature is that of the API server, as OpenID Connect Discovery
// describes it. Callers of the gateway's REST API are authenticated elsewhere: see gateway/internal/auth.
package triggerauth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events/setting"
)

// leeway is how far the clocks of the API server and of this node may differ.
const leeway = 30 * time.Second

// ErrUnavailable says that the API server's keys cannot be read, so that no token can be verified. It is transient: the
// sender has to send the request again.
var ErrUnavailable = errors.New("the keys of the API server cannot be read")

// Settings are what a token has to say.
type Settings struct {
	// Enabled is whether requests need a token.
	Enabled bool
	// Audience is the receiver, as spec.subscriber.audience of the Trigger has it.
	Audience string
	// Subjects are the ServiceAccounts of the Triggers. An entry that ends in * matches every name with that prefix.
	Subjects []string
}

// FromEnvironment reads OIDC_ENABLED, OIDC_AUDIENCE and OIDC_SUBJECTS, which is a list with commas.
func FromEnvironment(getenv func(string) string) (Settings, error) {
	s := Settings{Audience: getenv("OIDC_AUDIENCE")}
	if text := getenv("OIDC_ENABLED"); text != "" {
		var err error
		if s.Enabled, err = setting.Bool(text); err != nil {
			return Settings{}, fmt.Errorf("read OIDC_ENABLED: %w", err)
		}
	}
	for text := range strings.SplitSeq(getenv("OIDC_SUBJECTS"), ",") {
		if text = strings.TrimSpace(text); text != "" {
			s.Subjects = append(s.Subjects, text)
		}
	}
	return s, nil
}

// accountPrefix is the prefix of the subjects of ServiceAccounts.
const accountPrefix = "system:serviceaccount:"

func (s Settings) check() error {
	if s.Audience == "" {
		return errors.New("OIDC_ENABLED is true, and OIDC_AUDIENCE is empty: set it to spec.subscriber.audience of the Trigger")
	}
	if len(s.Subjects) == 0 {
		return fmt.Errorf("OIDC_ENABLED is true, and OIDC_SUBJECTS is empty: set it to %sNAMESPACE: and status.auth.serviceAccountName of the Trigger", accountPrefix)
	}
	for _, subject := range s.Subjects {
		namespace, name, found := strings.Cut(strings.TrimPrefix(subject, accountPrefix), ":")
		star := strings.IndexByte(subject, '*')
		if !strings.HasPrefix(subject, accountPrefix) || !found || namespace == "" || name == "" || strings.Contains(namespace, "*") || star >= 0 && star < len(subject)-1 {
			return fmt.Errorf("OIDC_SUBJECTS has %q: write %sNAMESPACE:NAME, where NAME may end in *", subject, accountPrefix)
		}
	}
	return nil
}

// Verifier verifies that requests come from the expected Triggers.
type Verifier struct {
	settings Settings
	keys     *keySource
	now      func() time.Time
}

// New returns a verifier that reads keys from the API server of config. It is nil, and verifies nothing, where the
// settings are not enabled. Incomplete settings are an error. New sends no request.
func New(s Settings, config func() (*rest.Config, error)) (*Verifier, error) {
	if !s.Enabled {
		return nil, nil
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	c, err := config()
	if err != nil {
		return nil, err
	}
	fetch, err := fetchFrom(c)
	if err != nil {
		return nil, err
	}
	return &Verifier{settings: s, keys: &keySource{fetch: fetch, now: time.Now}, now: time.Now}, nil
}

// Verify returns nil for a request with these Authorization headers if its token is valid, for this audience, and of
// an expected subject. An error says what to change, and contains no token. It is ErrUnavailable while the API server
// does not answer with its keys.
func (v *Verifier) Verify(ctx context.Context, authorization []string) error {
	text, err := v.bearer(authorization)
	if err != nil {
		return err
	}
	t, err := parse(text)
	if err != nil {
		return err
	}
	// Keys are looked up last, so that a token with wrong claims costs no request.
	if err := v.checkClaims(t.claims); err != nil {
		return err
	}
	key, err := v.keys.find(ctx, t.claims.Issuer, t.header.KeyID)
	if err != nil {
		return err
	}
	return t.checkSignature(key)
}

func (v *Verifier) bearer(authorization []string) (string, error) {
	if len(authorization) == 0 {
		return "", fmt.Errorf("the request has no token: set authentication-oidc to enabled in Knative's ConfigMap config-features, and spec.subscriber.audience of the Trigger to %q; or set OIDC_ENABLED to false, which lets every pod send events", v.settings.Audience)
	}
	if len(authorization) > 1 {
		return "", fmt.Errorf("the request has %d Authorization headers: send one", len(authorization))
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errors.New("the Authorization header has no bearer token: send Bearer and the token of the Trigger's ServiceAccount")
	}
	return token, nil
}

func (v *Verifier) checkClaims(c claims) error {
	now := v.now()
	switch {
	case c.Expiry == 0 || now.After(time.Unix(c.Expiry, 0).Add(leeway)):
		return fmt.Errorf("the token expired at %s: send a new one; where it is new, set the clock of the node", formatTime(c.Expiry))
	case now.Add(leeway).Before(time.Unix(c.NotBefore, 0)):
		return fmt.Errorf("the token is not valid before %s: set the clock of the node", formatTime(c.NotBefore))
	case !c.Audience.has(v.settings.Audience):
		return fmt.Errorf("the token is for the audience %.100q: set spec.subscriber.audience of the Trigger to %q", strings.Join(c.Audience, " "), v.settings.Audience)
	case !v.expects(c.Subject):
		return fmt.Errorf("the token is of %.200q, and %s takes deliveries of %s: send through the Broker, or add the Trigger to OIDC_SUBJECTS", c.Subject, v.settings.Audience, strings.Join(v.settings.Subjects, ", "))
	}
	return nil
}

func formatTime(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

func (v *Verifier) expects(subject string) bool {
	for _, expected := range v.settings.Subjects {
		if prefix, wildcard := strings.CutSuffix(expected, "*"); subject == expected || wildcard && strings.HasPrefix(subject, prefix) {
			return true
		}
	}
	return false
}
