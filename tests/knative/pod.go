package knative

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/tests/stand/process"
)

// pod is the only pod of a Deployment.
type pod struct {
	namespace, name string
	template        corev1.PodTemplateSpec
	generation      int64 // of the Deployment
	process         *process.Process
	inside          string
	ready           bool
	address         string // it has no clients
}

// newPod starts the program of the only container, with its ServiceAccount.
func (k *kubelet) newPod(ctx context.Context, namespace, name string, generation int64, template corev1.PodTemplateSpec) (*pod, error) {
	k.started++
	p := &pod{
		namespace: namespace, name: name, template: template, generation: generation,
		inside: filepath.Join(k.dir, fmt.Sprint(k.started)), address: fmt.Sprintf("10.244.0.%d", k.started%250+2),
	}
	container := template.Spec.Containers[0]
	env, err := k.environment(ctx, p, container)
	if err != nil {
		return nil, fmt.Errorf("environment of %s: %w", name, err)
	}
	kubeconfig, err := k.kubeconfig(ctx, namespace, template.Spec.ServiceAccountName)
	if err != nil {
		return nil, fmt.Errorf("credentials of %s: %w", name, err)
	}
	command, err := commandInPod(k.apiServer, k.outside, p.inside, filepath.Join(k.bin, path.Base(container.Image)))
	if err != nil {
		return nil, err
	}
	command.Env = append(env, "KUBECONFIG="+kubeconfig, "HTTP_PROXY=http://"+podProxy, "HTTPS_PROXY=http://"+podProxy)
	p.process, err = process.Start(command, filepath.Join(k.dir, name+".log"))
	return p, err
}

// environment resolves the environment of a container as a kubelet does, for the kinds of variables
// that occur.
func (k *kubelet) environment(ctx context.Context, p *pod, container corev1.Container) ([]string, error) {
	var env []string
	for _, variable := range container.Env {
		value := variable.Value
		switch from := variable.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			value = p.namespace
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
			value = p.name + "-0"
		case from.ConfigMapKeyRef != nil:
			config, err := k.client.CoreV1().ConfigMaps(p.namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			value = config.Data[from.ConfigMapKeyRef.Key]
		default:
			return nil, fmt.Errorf("variable %s has an unsupported source", variable.Name)
		}
		env = append(env, variable.Name+"="+value)
	}
	return env, nil
}

// kubeconfig writes a kubeconfig with a token of the ServiceAccount.
func (k *kubelet) kubeconfig(ctx context.Context, namespace, account string) (string, error) {
	seconds := int64((12 * time.Hour).Seconds())
	token, err := k.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	config := api.NewConfig()
	config.Clusters["c"] = &api.Cluster{Server: "https://" + k.apiServer, CertificateAuthority: k.authority}
	config.AuthInfos["u"] = &api.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u", Namespace: namespace}
	config.CurrentContext = "x"
	file := filepath.Join(k.dir, namespace+"_"+account)
	return file, clientcmd.WriteToFile(*config, file)
}

// dial connects to a port in the pod's network.
func (p *pod) dial(ctx context.Context, port int) (net.Conn, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", p.inside)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(connection, "%d\n", port); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// probe runs the readiness probe of the pod. A pod without one is ready as soon as it runs.
func (p *pod) probe(ctx context.Context) bool {
	container := p.template.Spec.Containers[0]
	if p.process.Ended() != nil {
		return false
	}
	if container.ReadinessProbe == nil || container.ReadinessProbe.HTTPGet == nil {
		return true
	}
	get := container.ReadinessProbe.HTTPGet
	port := get.Port.IntValue()
	for _, named := range container.Ports {
		if named.Name == get.Port.StrVal {
			port = int(named.ContainerPort)
		}
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // like a kubelet
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx, port) },
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://pod/"+strings.TrimPrefix(get.Path, "/"), nil)
	if err != nil {
		return false
	}
	request.Header.Set("User-Agent", "kube-probe/1.35")
	for _, header := range get.HTTPHeaders {
		request.Header.Set(header.Name, header.Value)
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode < http.StatusBadRequest
}

func (p *pod) stop() {
	p.process.Kill()
	_ = os.Remove(p.inside)
}
