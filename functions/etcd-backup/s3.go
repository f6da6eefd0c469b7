package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Keys of the Secret with the credentials of an object store.
const (
	keyID      = "accessKeyID"
	keySecret  = "secretAccessKey"
	keySession = "sessionToken"
	keyCA      = "ca.crt"
)

const (
	defaultRegion = "us-east-1"
	contentType   = "application/octet-stream"
	// partSize is how much of a snapshot is in memory. An object has 10000 parts at
	// most.
	partSize = 16 << 20
	// tries is how often a request is made that an object store does not answer.
	tries = 3
	// abortTimeout is for taking back what has been written of a file.
	abortTimeout = 10 * time.Second
)

// bucket stores snapshots in an S3 bucket.
type bucket struct {
	client *s3.Client
	name   string
}

func openBucket(at v1alpha1.BackupStorage, secret *corev1.Secret) (store, error) {
	for _, key := range []string{keyID, keySecret} {
		if len(secret.Data[key]) == 0 {
			return nil, reconcile.UserError{Reason: "CredentialsIncomplete", Message: fmt.Sprintf("Secret %s has no key %s: add it. The stack checks again every minute", secret.Name, key)}
		}
	}
	if u, err := url.Parse(at.Endpoint); at.Endpoint != "" && (err != nil || u.Host == "") {
		return nil, reconcile.UserError{Reason: "InvalidEndpoint", Message: fmt.Sprintf("endpoint %q is no URL: write one such as https://s3.example.com", at.Endpoint)}
	}
	transport, err := transportFor(secret.Data[keyCA])
	if err != nil {
		return nil, err
	}
	options := s3.Options{
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{
				AccessKeyID: string(secret.Data[keyID]), SecretAccessKey: string(secret.Data[keySecret]), SessionToken: string(secret.Data[keySession]),
			}, nil
		}),
		Region: cmp.Or(at.Region, defaultRegion), HTTPClient: &http.Client{Transport: transport, CheckRedirect: outbound.Stay}, RetryMaxAttempts: tries,
		// Other object stores than Amazon's may know neither trailing checksums nor buckets as hosts.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}
	if at.Endpoint != "" {
		options.BaseEndpoint, options.UsePathStyle = &at.Endpoint, true
	}
	return bucket{client: s3.New(options), name: at.Bucket}, nil
}

func transportFor(ca []byte) (http.RoundTripper, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = outbound.FromEnvironment().DialContext
	transport.ResponseHeaderTimeout = time.Minute
	if len(ca) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return nil, reconcile.UserError{Reason: "CredentialsIncomplete", Message: "the key " + keyCA + " of the Secret has no certificate"}
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return transport, nil
}

func (b bucket) Put(ctx context.Context, name string, content io.Reader) error {
	part, last, err := nextPart(content, make([]byte, partSize))
	switch {
	case err != nil:
	case last:
		_, err = b.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &b.name, Key: &name, Body: bytes.NewReader(part), ContentType: aws.String(contentType),
		}, withMD5)
	default:
		err = b.putParts(ctx, name, part, content)
	}
	return userErrorOf(err, "write "+name)
}

// putParts uploads a file whose first part is full.
func (b bucket) putParts(ctx context.Context, name string, part []byte, content io.Reader) (err error) {
	b.abortAbandoned(ctx, path.Dir(name))
	upload, err := b.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.name, Key: &name, ContentType: aws.String(contentType)})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // also where ctx has ended
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
			defer cancel()
			_, _ = b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: &name, UploadId: upload.UploadId})
		}
	}()
	var parts []types.CompletedPart
	for last := false; len(part) > 0; {
		number := aws.Int32(int32(len(parts) + 1))
		done, err := b.client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &b.name, Key: &name, UploadId: upload.UploadId, PartNumber: number, Body: bytes.NewReader(part),
		}, withMD5)
		if err != nil {
			return err
		}
		parts = append(parts, types.CompletedPart{PartNumber: number, ETag: done.ETag})
		if last {
			break
		}
		if part, last, err = nextPart(content, part[:partSize]); err != nil {
			return err
		}
	}
	_, err = b.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.name, Key: &name, UploadId: upload.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	return err
}

// abortAbandoned aborts uploads into a folder whose delivery has crashed, because a bucket
// keeps their parts and lists them nowhere. A key without the right to abort can still upload.
func (b bucket) abortAbandoned(ctx context.Context, folder string) {
	pages := s3.NewListMultipartUploadsPaginator(b.client, &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: aws.String(folder + "/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return
		}
		for _, u := range page.Uploads {
			if time.Since(aws.ToTime(u.Initiated)) > abandonedAfter {
				_, _ = b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: u.Key, UploadId: u.UploadId})
			}
		}
	}
}

// nextPart fills a buffer from content. It reports whether content has ended.
func nextPart(content io.Reader, buffer []byte) (part []byte, last bool, err error) {
	n, err := io.ReadFull(content, buffer)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return buffer[:n], true, nil
	}
	return buffer[:n], false, err
}

// withMD5 sends the MD5 of a body, which buckets with object locks require.
func withMD5(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware)
}

func (b bucket) List(ctx context.Context, folder string) ([]file, error) {
	var files []file
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: aws.String(folder + "/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, userErrorOf(err, "list "+folder)
		}
		for _, o := range page.Contents {
			files = append(files, file{aws.ToString(o.Key), aws.ToInt64(o.Size)})
		}
	}
	return files, nil
}

func (b bucket) Delete(ctx context.Context, name string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &name})
	return userErrorOf(err, "delete "+name)
}

// userErrorOf returns a UserError for an answer of the object store that only a user can
// resolve, and any other error with what was to be done. An error without an answer names the server,
// in words that a retry repeats.
func userErrorOf(err error, what string) error {
	if err == nil {
		return nil
	}
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return reconcile.UserError{Reason: "EndpointNotAllowed", Message: denied.Error()}
	}
	var answer smithy.APIError
	if errors.As(err, &answer) {
		switch answer.ErrorCode() {
		case "NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidBucketName", "AuthorizationHeaderMalformed", "PermanentRedirect", "ExpiredToken":
			return reconcile.UserError{Reason: "StorageRefused", Message: fmt.Sprintf("the object store does not %s: %s (%s)", what, answer.ErrorMessage(), answer.ErrorCode())}
		}
	}
	var unanswered *url.Error
	if errors.As(err, &unanswered) {
		if server, parseErr := url.Parse(unanswered.URL); parseErr == nil {
			return fmt.Errorf("%s: the object store at %s://%s does not answer: %s", what, server.Scheme, server.Host, httpclient.Unanswered(err))
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
