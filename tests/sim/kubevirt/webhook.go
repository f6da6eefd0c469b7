package kubevirt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the webhook configurations, as KubeVirt and CDI call them. A simulator of one namespace
// appends its name.
const (
	mutatorName     = "virt-api-mutator"
	validatorName   = "virt-api-validator"
	cdiWebhooksName = "cdi-api-datavolume-validate"

	// instanceValidator validates instances.
	instanceValidator = "virtualmachineinstances-create-validator.kubevirt.io"
)

// serveAdmission serves the webhooks until ctx ends, and registers them. The certificate and the
// registrations are new at each start.
func (s *Simulator) serveAdmission(ctx context.Context, failed func(error)) error {
	address := s.options.WebhookAddress
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for admission: %w", err)
	}
	host := listener.Addr().(*net.TCPAddr)
	certificate, authority, err := newCertificate(host.IP)
	if err != nil {
		return errors.Join(fmt.Errorf("make a certificate: %w", err), listener.Close())
	}
	server := &http.Server{
		Handler:           s.reviews(),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serve admission: %w", err))
		}
	}()
	return s.register(ctx, "https://"+host.String(), authority)
}

// register registers the webhooks of this process at the API server.
func (s *Simulator) register(ctx context.Context, url string, authority []byte) error {
	suffix := ""
	if s.options.Namespace != "" {
		suffix = "-" + s.options.Namespace
	}
	hooks := webhooks{url: url, authority: authority, namespace: s.options.Namespace, completing: s.options.RealController}
	if err := replace(ctx, s.api.mutating, hooks.mutating(mutatorName+suffix)); err != nil {
		return err
	}
	if err := replace(ctx, s.api.validating, hooks.validating(validatorName+suffix)); err != nil {
		return err
	}
	return replace(ctx, s.api.validating, hooks.dataVolumes(cdiWebhooksName+suffix))
}

// replace replaces an object by o.
func replace[P object](ctx context.Context, k *kind[P], o P) error {
	before, err := k.read(ctx, o.GetNamespace(), o.GetName())
	if apierrors.IsNotFound(err) {
		_, err = k.create(ctx, o)
		return err
	}
	if err != nil {
		return err
	}
	o.SetUID(before.GetUID())
	o.SetResourceVersion(before.GetResourceVersion())
	o.SetGeneration(before.GetGeneration())
	o.SetCreationTimestamp(before.GetCreationTimestamp())
	o.SetManagedFields(before.GetManagedFields())
	_, err = k.patch(ctx, before, o)
	return err
}

// webhooks returns the registrations.
type webhooks struct {
	url       string
	authority []byte
	namespace string
	// completing is whether instances that KubeVirt creates are completed and judged too.
	completing bool
}

// conditions exclude KubeVirt's own writes, and objects that are being deleted, so that a deletion
// completes while the simulator is down. The simulator completes and judges the instances that it creates
// itself, and those of the real virt-controller here.
func (w webhooks) conditions() []admissionregistrationv1.MatchCondition {
	foreign := fmt.Sprintf("request.userInfo.username != %q", ServiceAccount)
	if w.completing {
		foreign += ` || request.operation == "CREATE"`
	}
	return []admissionregistrationv1.MatchCondition{
		{Name: "not-kubevirt", Expression: foreign},
		{Name: "not-deleted", Expression: "!has(object.metadata.deletionTimestamp)"},
	}
}

func (w webhooks) client(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: new(w.url + path), CABundle: w.authority}
}

func (w webhooks) rules(group, version, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource},
			Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
}

func (w webhooks) selector() *metav1.LabelSelector {
	if w.namespace == "" {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}}
}

func (w webhooks) mutating(name string) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, resource := range []string{"virtualmachines", "virtualmachineinstances"} {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name:         resource + "-mutator.kubevirt.io",
			ClientConfig: w.client("/" + resource + "-mutate"),
			Rules: w.rules("kubevirt.io", "v1", resource,
				admissionregistrationv1.Create, admissionregistrationv1.Update),
			NamespaceSelector: w.selector(), ObjectSelector: &metav1.LabelSelector{}, MatchConditions: w.conditions(),
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			MatchPolicy: new(admissionregistrationv1.Equivalent), ReinvocationPolicy: new(admissionregistrationv1.NeverReinvocationPolicy),
			TimeoutSeconds: new(int32(10)), AdmissionReviewVersions: []string{"v1"},
		})
	}
	return c
}

func (w webhooks) validating(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	const machine, instance = "virtualmachines", "virtualmachineinstances"
	c.Webhooks = []admissionregistrationv1.ValidatingWebhook{
		w.validator(instanceValidator, "/virtualmachineinstances-validate-create",
			w.rules("kubevirt.io", "v1", instance, admissionregistrationv1.Create)),
		w.validator("virtualmachineinstances-update-validator.kubevirt.io", "/virtualmachineinstances-validate-update",
			w.rules("kubevirt.io", "v1", instance, admissionregistrationv1.Update)),
		w.validator("virtualmachine-validator.kubevirt.io", "/virtualmachines-validate",
			w.rules("kubevirt.io", "v1", machine, admissionregistrationv1.Create, admissionregistrationv1.Update)),
	}
	return c
}

// dataVolumes is CDI's webhook, which exempts no client: it also rejects DataVolumes that
// virt-controller creates from the templates of a VirtualMachine (cdi
// pkg/operator/resources/cluster/apiserver.go has no condition).
func (w webhooks) dataVolumes(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	validator := w.validator("datavolume-validate.cdi.kubevirt.io", "/datavolume-validate",
		w.rules("cdi.kubevirt.io", "v1beta1", "datavolumes", admissionregistrationv1.Create, admissionregistrationv1.Update))
	validator.MatchConditions = w.conditions()[1:]
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{validator},
	}
}

func (w webhooks) validator(name, path string, rules []admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: name, ClientConfig: w.client(path), Rules: rules,
		NamespaceSelector: w.selector(), ObjectSelector: &metav1.LabelSelector{}, MatchConditions: w.conditions(),
		FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		MatchPolicy: new(admissionregistrationv1.Equivalent), TimeoutSeconds: new(int32(10)),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// newCertificate returns a self-signed serving certificate for an address, and its authority in PEM.
func newCertificate(address net.IP) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "virt-api"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:           []net.IP{address},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority, nil
}
