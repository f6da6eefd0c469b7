package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/vitistack/stack/gateway/internal/config"
)

// certificates are the files of TLS, as they are at present.
type certificates struct {
	settings config.TLS
	log      *slog.Logger
	current  atomic.Pointer[tls.Config]
}

// newCertificates reads the files. One that cannot be used is an error that names
// its key.
func newCertificates(c config.TLS, log *slog.Logger) (*certificates, error) {
	made := &certificates{settings: c, log: log}
	return made, made.load()
}

func (s *certificates) load() error {
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

// config is one of TLS that always uses the files as they are.
func (s *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.current.Load(), nil
		},
	}
}

// run reads the files again when one of them changes, until ctx ends.
func (s *certificates) run(ctx context.Context) {
	done := make(chan struct{})
	files := []string{s.settings.CertFile, s.settings.KeyFile, s.settings.CAFile}
	for _, file := range files {
		go func() {
			defer func() { done <- struct{}{} }()
			follow(ctx, file, func([]byte) error { return s.load() }, s.log)
		}()
	}
	for range files {
		<-done
	}
}
