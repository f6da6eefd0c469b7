// Package s3 simulates an object store for one client: objects, multipart uploads and lists of one
// bucket. It checks signatures and checksums as AWS does
// (https://docs.aws.amazon.com/AmazonS3/latest/API).
package s3

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/stack/tests/sim/faults"
)

const (
	defaultPageSize = 1000
	// leastPart is the minimum size of each part of an upload except the last, in bytes.
	leastPart = 5 << 20
)

// Store is one bucket. Its fields are set before it serves.
type Store struct {
	Bucket, Region, KeyID, Secret string
	// PageSize is the maximum number of objects in a list. Default: 1000.
	PageSize int
	// Plan is the fault plan, with the operations PutObject, GetObject, DeleteObject, ListObjects,
	// ListUploads, CreateUpload, UploadPart, CompleteUpload and AbortUpload. An error is a code of S3,
	// sent with status 503, or 403 for AccessDenied.
	Plan *faults.Plan
	// Now is the clock. Default: the real one.
	Now func() time.Time

	mu      sync.Mutex
	objects map[string][]byte
	uploads map[string]*upload
	next    int
}

type upload struct {
	key   string
	begun time.Time
	parts map[int][]byte
}

// Object is a stored object.
func (s *Store) Object(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok := s.objects[key]
	return bytes.Clone(content), ok
}

// Keys returns the keys of all objects.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Uploads returns the number of multipart uploads that are neither completed nor aborted.
func (s *Store) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// refusal is an error response of S3.
type refusal struct {
	status  int
	code    string
	message string
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(status int, code, message string) *refusal { return &refusal{status, code, message} }

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	answer, refused := s.serve(w, r, body)
	w.Header().Set("Content-Type", "application/xml")
	switch {
	case refused != nil:
		w.WriteHeader(refused.status)
		_ = xml.NewEncoder(w).Encode(struct {
			XMLName       xml.Name `xml:"Error"`
			Code, Message string
		}{Code: refused.code, Message: refused.message})
	case answer != nil:
		_ = xml.NewEncoder(w).Encode(answer)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request, body []byte) (any, *refusal) {
	if refused := s.authenticate(r, body); refused != nil {
		return nil, refused
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != s.Bucket {
		return nil, refuse(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
	}
	if sum := r.Header.Get("Content-Md5"); sum != "" && sum != base64.StdEncoding.EncodeToString(md5Of(body)) {
		return nil, refuse(http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match what we received.")
	}
	operation := operationOf(r, key)
	fault := s.Plan.Next(operation)
	if err := fault.Wait(r.Context()); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "SlowDown", err.Error())
	}
	if code, failed := fault.Before(); failed {
		return nil, faulty(code)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, refused := s.do(w, r, operation, key, body)
	if code, lost := fault.Lost(); lost && refused == nil {
		return nil, faulty(code)
	}
	return answer, refused
}

func faulty(code string) *refusal {
	status := http.StatusServiceUnavailable
	if code == "AccessDenied" {
		status = http.StatusForbidden
	}
	return refuse(status, code, "as the test wants it")
}

func operationOf(r *http.Request, key string) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && key == "" && q.Has("uploads"):
		return "ListUploads"
	case r.Method == http.MethodGet && key == "":
		return "ListObjects"
	case r.Method == http.MethodPost && q.Has("uploads"):
		return "CreateUpload"
	case r.Method == http.MethodPut && q.Has("uploadId"):
		return "UploadPart"
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return "CompleteUpload"
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return "AbortUpload"
	case r.Method == http.MethodPut:
		return "PutObject"
	case r.Method == http.MethodDelete:
		return "DeleteObject"
	default:
		return "GetObject"
	}
}

func (s *Store) do(w http.ResponseWriter, r *http.Request, operation, key string, body []byte) (any, *refusal) {
	if s.objects == nil {
		s.objects, s.uploads = map[string][]byte{}, map[string]*upload{}
	}
	id := r.URL.Query().Get("uploadId")
	if id != "" && s.uploads[id] == nil {
		return nil, refuse(http.StatusNotFound, "NoSuchUpload", "The specified multipart upload does not exist.")
	}
	switch operation {
	case "ListObjects":
		return s.list(r.URL.Query().Get("prefix"), r.URL.Query().Get("continuation-token")), nil
	case "ListUploads":
		return s.listUploads(r.URL.Query().Get("prefix")), nil
	case "CreateUpload":
		s.next++
		id := strconv.Itoa(s.next)
		s.uploads[id] = &upload{key: key, begun: s.now(), parts: map[int][]byte{}}
		return struct {
			XMLName     xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket, Key string
			UploadID    string `xml:"UploadId"`
		}{Bucket: s.Bucket, Key: key, UploadID: id}, nil
	case "UploadPart":
		number, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
		s.uploads[id].parts[number] = body
		w.Header().Set("ETag", etag(body))
		return nil, nil
	case "CompleteUpload":
		return s.complete(id, body)
	case "AbortUpload":
		delete(s.uploads, id)
		return nil, nil
	case "PutObject":
		s.objects[key] = body
		w.Header().Set("ETag", etag(body))
		return nil, nil
	case "DeleteObject":
		delete(s.objects, key)
		return nil, nil
	default:
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", operation+" is not simulated")
	}
}

// complete joins the listed parts of an upload.
func (s *Store) complete(id string, body []byte) (any, *refusal) {
	var in struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if xml.Unmarshal(body, &in) != nil || len(in.Part) == 0 {
		return nil, refuse(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed")
	}
	u := s.uploads[id]
	var whole []byte
	for i, p := range in.Part {
		part, ok := u.parts[p.PartNumber]
		if !ok || strings.Trim(p.ETag, `"`) != strings.Trim(etag(part), `"`) {
			return nil, refuse(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found.")
		}
		if i < len(in.Part)-1 && len(part) < leastPart {
			return nil, refuse(http.StatusBadRequest, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
		}
		whole = append(whole, part...)
	}
	s.objects[u.key] = whole
	delete(s.uploads, id)
	return struct {
		XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
		Bucket, Key, ETag string
	}{Bucket: s.Bucket, Key: u.key, ETag: etag(whole)}, nil
}

type listed struct {
	Key, LastModified, ETag string
	Size                    int
}

// list returns a page of the objects with a prefix, after a key.
func (s *Store) list(prefix, after string) any {
	most := cmp.Or(s.PageSize, defaultPageSize)
	var contents []listed
	var next string
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= after {
			continue
		}
		if len(contents) == most {
			next = contents[most-1].Key
			break
		}
		content := s.objects[key]
		contents = append(contents, listed{key, time.Unix(0, 0).UTC().Format(time.RFC3339), etag(content), len(content)})
	}
	return struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		KeyCount              int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []listed
	}{Name: s.Bucket, Prefix: prefix, KeyCount: len(contents), IsTruncated: next != "", NextContinuationToken: next, Contents: contents}
}

// listUploads returns the running uploads of keys with a prefix.
func (s *Store) listUploads(prefix string) any {
	type listed struct {
		Key       string
		UploadID  string `xml:"UploadId"`
		Initiated string
	}
	var found []listed
	for _, id := range slices.Sorted(maps.Keys(s.uploads)) {
		if u := s.uploads[id]; strings.HasPrefix(u.key, prefix) {
			found = append(found, listed{u.key, id, u.begun.UTC().Format(time.RFC3339)})
		}
	}
	return struct {
		XMLName        xml.Name `xml:"ListMultipartUploadsResult"`
		Bucket, Prefix string
		IsTruncated    bool
		Upload         []listed
	}{Bucket: s.Bucket, Prefix: prefix, Upload: found}
}

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func md5Of(content []byte) []byte {
	sum := md5.Sum(content)
	return sum[:]
}

func etag(content []byte) string { return fmt.Sprintf("%q", hex.EncodeToString(md5Of(content))) }
