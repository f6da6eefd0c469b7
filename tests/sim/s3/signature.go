package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	timestamp = "20060102T150405Z"
	unsigned  = "UNSIGNED-PAYLOAD"
	// skew is the permitted difference of a client's clock.
	skew = 15 * time.Minute
)

// authenticate checks a request's signature of version 4
// (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html).
func (s *Store) authenticate(r *http.Request, body []byte) *refusal {
	fields, ok := strings.CutPrefix(r.Header.Get("Authorization"), algorithm+" ")
	if !ok {
		return refuse(http.StatusForbidden, "AccessDenied", "Access Denied")
	}
	given := map[string]string{}
	for _, field := range strings.Split(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		given[name] = value
	}
	at, err := time.Parse(timestamp, r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > skew {
		return refuse(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the server's time is too large.")
	}
	scope := strings.Join([]string{at.Format("20060102"), s.Region, "s3", "aws4_request"}, "/")
	switch given["Credential"] {
	case s.KeyID + "/" + scope:
	default:
		if !strings.HasPrefix(given["Credential"], s.KeyID+"/") {
			return refuse(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
		}
		return refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed", "the region is wrong; expecting '"+s.Region+"'")
	}
	payload := r.Header.Get("X-Amz-Content-Sha256")
	if sum := sha256.Sum256(body); payload != unsigned && payload != hex.EncodeToString(sum[:]) {
		return refuse(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
	}
	text := strings.Join([]string{algorithm, at.Format(timestamp), scope, digest(canonical(r, strings.Split(given["SignedHeaders"], ";"), payload))}, "\n")
	key := []byte("AWS4" + s.Secret)
	for _, step := range strings.Split(scope, "/") {
		key = sign(key, step)
	}
	if !hmac.Equal([]byte(hex.EncodeToString(sign(key, text))), []byte(given["Signature"])) {
		return refuse(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	return nil
}

func canonical(r *http.Request, signed []string, payload string) string {
	var headers strings.Builder
	for _, name := range signed {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = r.Header.Get("Content-Length")
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	var query []string
	for name, values := range r.URL.Query() {
		for _, v := range values {
			query = append(query, encode(name)+"="+encode(v))
		}
	}
	slices.Sort(query)
	path := strings.ReplaceAll(encode(r.URL.Path), "%2F", "/")
	return strings.Join([]string{r.Method, path, strings.Join(query, "&"), headers.String(), strings.Join(signed, ";"), payload}, "\n")
}

func encode(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
