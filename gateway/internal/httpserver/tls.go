package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/filewatch"
)

// Certificates holds the TLS configuration of the current files.
type Certificates struct {
	settings config.TLS
	log      *slog.Logger
	current  atomic.Pointer[tls.Config]
}

// NewCertificates reads the files. An invalid file is an error that names its key.
func NewCertificates(c config.TLS, log *slog.Logger) (*Certificates, error) {
	made := &Certificates{settings: c, log: log}
	return made, made.load()
}

func (s *Certificates) load() error {
	c := s.settings
	if c.CertFile == "" || c.KeyFile == "" {
		return errors.New("read configuration: keys tls.certFile and tls.keyFile: both are needed with tls.enabled")
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return fmt.Errorf("read configuration: keys tls.certFile and tls.keyFile: %w", err)
	}
	made := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if c.MinVersion == "1.3" {
		made.MinVersion = tls.VersionTLS13
	}
	if c.CAFile != "" {
		content, err := os.ReadFile(c.CAFile)
		if err != nil {
			return fmt.Errorf("read configuration: key tls.caFile: %w", err)
		}
		made.ClientCAs = x509.NewCertPool()
		if !made.ClientCAs.AppendCertsFromPEM(content) {
			return errors.New("read configuration: key tls.caFile: the file has no certificate in PEM")
		}
		made.ClientAuth = tls.VerifyClientCertIfGiven
		if c.ClientAuth == "require" {
			made.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	s.current.Store(made)
	return nil
}

// Config returns a TLS configuration that uses the current files for each connection.
func (s *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.current.Load(), nil
		},
	}
}

// Follow reads the files again when one of them changes, until ctx ends.
func (s *Certificates) Follow(ctx context.Context) {
	var running sync.WaitGroup
	for _, file := range []string{s.settings.CertFile, s.settings.KeyFile, s.settings.CAFile} {
		running.Go(func() { filewatch.Follow(ctx, file, func([]byte) error { return s.load() }, s.log) })
	}
	running.Wait()
}
