package triggerauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	// The hashes of the algorithms.
	_ "crypto/sha256"
	_ "crypto/sha512"
)

// token is a JSON Web Token in the compact form of RFC 7515, before its signature is verified.
type token struct {
	header    header
	claims    claims
	signed    string // what the signature is of
	signature []byte
}

type header struct {
	Algorithm string          `json:"alg"`
	KeyID     string          `json:"kid"`
	Critical  json.RawMessage `json:"crit"`
}

type claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Audience  audience `json:"aud"`
	Expiry    int64    `json:"exp"`
	NotBefore int64    `json:"nbf"`
}

// audience is one text or a list of them.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

func (a audience) has(one string) bool { return slices.Contains(a, one) }

var errMalformed = errors.New("the token is not a JSON Web Token: send a token that the Kubernetes API server issued by TokenRequest")

// parse decodes a token. Its claims are not trusted until its signature is verified.
func parse(text string) (*token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errMalformed
	}
	t := &token{signed: parts[0] + "." + parts[1]}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return nil, errMalformed
		}
	}
	if json.Unmarshal(decoded[0], &t.header) != nil || json.Unmarshal(decoded[1], &t.claims) != nil {
		return nil, errMalformed
	}
	if t.header.Critical != nil {
		return nil, errors.New("the token has critical extensions, which are not known here: send one without them")
	}
	t.signature = decoded[2]
	return t, nil
}

// algorithm returns the algorithm that a key signs with. The key decides, never the token: a token with algorithm none,
// or one that is signed by HS256 with the public key as its secret, therefore fails.
func algorithm(key crypto.PublicKey) (string, crypto.Hash) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RS256", crypto.SHA256
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return "ES256", crypto.SHA256
		case 384:
			return "ES384", crypto.SHA384
		case 521:
			return "ES512", crypto.SHA512
		}
	}
	return "", 0
}

// checkSignature verifies that the owner of key has signed the token.
func (t *token) checkSignature(key crypto.PublicKey) error {
	name, hash := algorithm(key)
	if name == "" || t.header.Algorithm != name {
		return fmt.Errorf("the token is signed by %.20q, and the API server's key %.60q signs by %s: send a token of the API server", t.header.Algorithm, t.header.KeyID, name)
	}
	h := hash.New()
	h.Write([]byte(t.signed))
	digest := h.Sum(nil)
	valid := false
	switch k := key.(type) {
	case *rsa.PublicKey:
		valid = rsa.VerifyPKCS1v15(k, hash, digest, t.signature) == nil
	case *ecdsa.PublicKey:
		if size := (k.Curve.Params().BitSize + 7) / 8; len(t.signature) == 2*size {
			valid = ecdsa.Verify(k, digest, new(big.Int).SetBytes(t.signature[:size]), new(big.Int).SetBytes(t.signature[size:]))
		}
	}
	if !valid {
		return errors.New("the signature of the token is wrong: send a token of the API server as it was issued")
	}
	return nil
}
