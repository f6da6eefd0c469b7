package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/events/setting"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// Limits of the configuration.
const (
	defaultTimeout = 10 * time.Second
	// maxTimeout lets a delivery go on with one server after the other one has
	// kept it waiting.
	maxTimeout = 12 * time.Second
	// maxConfiguration is the largest answer that is read: a configuration with
	// some hundred thousand reservations.
	maxConfiguration = 128 << 20
	defaultPort      = "8000"
	defaultClasses   = "biosclients,ueficlients,ipxeclients"
)

// settings are the values of the environment. Their names and defaults are those of the
// kea-operator.
type settings struct {
	// urls are those of the primary and the secondary server. They are empty if the
	// installation has no Kea.
	urls                        []string
	timeout                     time.Duration
	disableKeepAlives           bool
	username, password          string
	tls                         bool
	insecure                    bool
	serverName                  string
	caFile, certFile, keyFile   string
	secretName, secretNamespace string
	namespace                   string
	classes                     []string
	allowed                     subnetList
	strict                      bool
	// shared is whether another installation of the stack uses the same Kea.
	shared bool
	// outbound says which servers may be connected to.
	outbound outbound.Rules
}

// readSettings reads the environment. It returns an error that names the variable
// and what to write into it.
func readSettings(getenv func(string) string) (settings, error) {
	var problems []error
	var err error
	flag := func(name string, standard bool) bool {
		text := getenv(name)
		if text == "" {
			return standard
		}
		v, err := setting.Bool(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("read %s: write true or false", name))
		}
		return v
	}
	s := settings{
		timeout:           defaultTimeout,
		disableKeepAlives: flag("KEA_DISABLE_KEEPALIVES", true),
		tls:               flag("KEA_TLS_ENABLED", false),
		insecure:          flag("KEA_TLS_INSECURE", false),
		strict:            flag("KEA_STRICT_DEFAULTS", false),
		shared:            flag("KEA_SHARED", false),
		username:          getenv("KEA_BASIC_AUTH_USERNAME"),
		password:          getenv("KEA_BASIC_AUTH_PASSWORD"),
		secretName:        getenv("KEA_TLS_SECRET_NAME"),
		namespace:         kube.Namespace(getenv),
		classes:           list(cmp.Or(getenv("KEA_REQUIRE_CLIENT_CLASSES"), defaultClasses)),
	}
	s.secretNamespace = cmp.Or(getenv("KEA_TLS_SECRET_NAMESPACE"), s.namespace)
	if s.tls {
		s.serverName, s.caFile = getenv("KEA_TLS_SERVER_NAME"), getenv("KEA_TLS_CA_FILE")
		s.certFile, s.keyFile = getenv("KEA_TLS_CERT_FILE"), getenv("KEA_TLS_KEY_FILE")
	}
	if text := getenv("KEA_TIMEOUT_SECONDS"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 {
			problems = append(problems, errors.New("read KEA_TIMEOUT_SECONDS: write a number of seconds from 1"))
		}
		s.timeout = min(time.Duration(seconds)*time.Second, maxTimeout)
	}
	if s.allowed, err = parseSubnetList(getenv(allowedVariable)); err != nil {
		problems = append(problems, err)
	}
	s.outbound = outbound.Parse(getenv(outbound.Variable))
	if s.urls, err = urls(getenv, s.caFile != "" || s.certFile != "" || s.secretName != ""); err != nil {
		problems = append(problems, err)
	}
	return s, errors.Join(problems...)
}

// urls returns the URLs of the configured servers, completed by scheme and port.
func urls(getenv func(string) string, secure bool) ([]string, error) {
	primary := cmp.Or(getenv("KEA_URL"), getenv("KEA_BASE_URL"), getenv("KEA_HOST"))
	secondary := getenv("KEA_SECONDARY_URL")
	if primary == "" && secondary != "" {
		return nil, errors.New("read KEA_URL: it is empty, but KEA_SECONDARY_URL is not: write the primary server's address into it")
	}
	var all []string
	for _, text := range []string{primary, secondary} {
		if text == "" {
			continue
		}
		if !strings.Contains(text, "://") {
			scheme := "http://"
			if secure {
				scheme = "https://"
			}
			text = scheme + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" {
			return nil, errors.New("read KEA_URL and KEA_SECONDARY_URL: write addresses such as https://kea.example.com:8000")
		}
		if u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), cmp.Or(getenv("KEA_PORT"), defaultPort))
		}
		all = append(all, u.String())
	}
	return all, nil
}

// secretReader reads the data of a Secret.
type secretReader func(namespace, name string) (map[string][]byte, error)

// connect makes the clients of the servers. A client whose credentials are refused reads
// the environment and the Secret of the certificates again. report may be nil.
func (s settings) connect(getenv func(string) string, secret secretReader, report kea.Report) ([]*kea.Client, error) {
	var controls []*kea.Client
	for i, address := range s.urls {
		config, err := s.clientConfig(address, secret)
		if err != nil {
			return nil, err
		}
		config.Renew = func() (httpclient.Config, error) {
			now, err := readSettings(getenv)
			if err != nil {
				return httpclient.Config{}, err
			}
			return now.clientConfig(address, secret)
		}
		client, err := httpclient.New(config)
		if err != nil {
			return nil, err
		}
		controls = append(controls, kea.NewClient([...]string{"primary", "secondary"}[i], client, report))
	}
	return controls, nil
}

// clientConfig says how to reach one server. A client certificate takes the place of
// username and password.
func (s settings) clientConfig(address string, secret secretReader) (httpclient.Config, error) {
	trust, err := httpclient.LoadTLS(s.caFile, s.certFile, s.keyFile)
	if err != nil {
		return httpclient.Config{}, fmt.Errorf("%w: correct KEA_TLS_CA_FILE, KEA_TLS_CERT_FILE and KEA_TLS_KEY_FILE", err)
	}
	if s.secretName != "" {
		data, err := secret(s.secretNamespace, s.secretName)
		if err != nil {
			return httpclient.Config{}, fmt.Errorf("%w: correct KEA_TLS_SECRET_NAME and KEA_TLS_SECRET_NAMESPACE", err)
		}
		trust = httpclient.SecretTLS(data)
	}
	trust.ServerName, trust.Insecure = s.serverName, s.insecure
	if len(trust.Cert) > 0 {
		s.username, s.password = "", ""
	}
	return httpclient.Config{
		URL: address, Timeout: s.timeout, TLS: trust, Username: s.username, Password: s.password,
		DisableKeepAlives: s.disableKeepAlives, MaxBody: maxConfiguration, UserAgent: "vitistack-" + name,
		Outbound: s.outbound,
	}, nil
}

func list(text string) []string {
	var all []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}
