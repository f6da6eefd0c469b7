package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
)

// Keys of the Secret with the credentials of an object store.
const (
	keyID      = "accessKeyID"
	keySecret  = "secretAccessKey"
	keySession = "sessionToken"
	keyCA      = "ca.crt"
)

const (
	defaultEndpoint = "https://s3.amazonaws.com"
	defaultRegion   = "us-east-1"
	// partSize is how much of a snapshot is in memory. An object has 10000 parts at
	// most.
	partSize = 16 << 20
	// tries is how often a request is made that an object store does not answer.
	tries = 3
)

// bucket keeps snapshots in an object store.
type bucket struct {
	client *minio.Client
	name   string
}

func openBucket(at v1alpha1.BackupStorage, secret *corev1.Secret) (store, error) {
	for _, key := range []string{keyID, keySecret} {
		if len(secret.Data[key]) == 0 {
			return nil, fault{"CredentialsIncomplete", fmt.Sprintf("Secret %s has no key %s: add it", secret.Name, key)}
		}
	}
	if at.Endpoint == "" {
		at.Endpoint = defaultEndpoint
	}
	if at.Region == "" {
		at.Region = defaultRegion
	}
	u, err := url.Parse(at.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fault{"InvalidEndpoint", fmt.Sprintf("endpoint %q is no URL: write one such as https://s3.example.com", at.Endpoint)}
	}
	transport, err := transportFor(u.Scheme == "https", secret.Data[keyCA])
	if err != nil {
		return nil, err
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(string(secret.Data[keyID]), string(secret.Data[keySecret]), string(secret.Data[keySession])),
		Secure: u.Scheme == "https", Region: at.Region, Transport: transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, fault{"InvalidEndpoint", fmt.Sprintf("endpoint %q: %v", at.Endpoint, err)}
	}
	return bucket{client: client, name: at.Bucket}, nil
}

func transportFor(secure bool, ca []byte) (http.RoundTripper, error) {
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("connect to the object store: %w", err)
	}
	transport.DialContext = outbound.FromEnvironment().DialContext
	if len(ca) > 0 && secure {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fault{"CredentialsIncomplete", "the key " + keyCA + " of the Secret has no certificate"}
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return transport, nil
}

func (b bucket) Put(ctx context.Context, name string, content io.Reader) error {
	_, err := b.client.PutObject(ctx, b.name, name, content, -1, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize, SendContentMd5: true,
	})
	return refused(err, "write "+name)
}

func (b bucket) List(ctx context.Context, folder string) ([]file, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // which ends the listing
	var files []file
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: folder + "/", Recursive: true}) {
		if o.Err != nil {
			return nil, refused(o.Err, "list "+folder)
		}
		files = append(files, file{o.Key, o.Size})
	}
	return files, nil
}

func (b bucket) Delete(ctx context.Context, name string) error {
	return refused(b.client.RemoveObject(ctx, b.name, name, minio.RemoveObjectOptions{}), "delete "+name)
}

// refused is a fault where the object store says what somebody has to change.
func refused(err error, what string) error {
	if err == nil {
		return nil
	}
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return fault{"EndpointNotAllowed", denied.Error()}
	}
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		switch answer.Code {
		case "NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidBucketName", "AuthorizationHeaderMalformed", "PermanentRedirect", "ExpiredToken":
			return fault{"StorageRefused", fmt.Sprintf("the object store does not %s: %s (%s)", what, answer.Message, answer.Code)}
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
