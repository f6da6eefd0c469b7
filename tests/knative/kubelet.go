package knative

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

const (
	imagePrefix  = "ko://knative.dev/eventing/"
	lookInterval = 250 * time.Millisecond
	restartPause = 2 * time.Second
)

// kubelet plays the controllers of Deployments, pods and endpoints, and the kubelet, for Deployments
// with Knative's images: it runs one pod of each, writes the Deployment's status, and updates the
// EndpointSlices of the Services that select it.
type kubelet struct {
	client    kubernetes.Interface
	dir, bin  string
	apiServer string // host:port
	authority string // file
	outside   string // socket
	logf      func(format string, args ...any)

	started int
	mu      sync.Mutex
	pods    map[string]*pod // by namespace/name of the Deployment
	ended   map[string]time.Time
}

// run manages the pods until ctx ends, and then stops them.
func (k *kubelet) run(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			k.logf("pods: %v", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	for _, p := range k.pods {
		p.stop()
	}
}

func (k *kubelet) look(ctx context.Context) error {
	deployments, err := k.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	services, err := k.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, deployment := range deployments.Items {
		if !strings.HasPrefix(deployment.Spec.Template.Spec.Containers[0].Image, imagePrefix) {
			continue
		}
		key := deployment.Namespace + "/" + deployment.Name
		wanted[key] = *deployment.Spec.Replicas > 0
		if !wanted[key] {
			continue
		}
		if err := k.care(ctx, key, &deployment, services.Items); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range slices.Collect(maps.Keys(k.pods)) {
		if !wanted[key] {
			k.pods[key].stop()
			delete(k.pods, key)
		}
	}
	return nil
}

// care runs the pod of a Deployment according to its template, and writes the status.
func (k *kubelet) care(ctx context.Context, key string, deployment *appsv1.Deployment, services []corev1.Service) error {
	p := k.pods[key]
	if p != nil {
		ended := p.process.Ended()
		if ended != nil {
			k.logf("%s: %v", key, ended)
			k.ended[key] = time.Now()
		}
		if ended != nil || !equality.Semantic.DeepEqual(p.template, deployment.Spec.Template) {
			p.stop()
			p = nil
		}
	}
	if p == nil && time.Since(k.ended[key]) > restartPause {
		var err error
		if p, err = k.newPod(ctx, deployment.Namespace, deployment.Name, deployment.Generation, deployment.Spec.Template); err != nil {
			return err
		}
	}
	ready := p != nil && p.probe(ctx)
	k.mu.Lock()
	if p == nil {
		delete(k.pods, key)
	} else {
		p.ready = ready
		k.pods[key] = p
	}
	k.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := k.tellDeployment(ctx, deployment, ready); err != nil {
		return err
	}
	for _, service := range services {
		if service.Namespace == p.namespace && len(service.Spec.Selector) > 0 &&
			labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(p.template.Labels)) {
			if err := k.tellService(ctx, &service, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *kubelet) tellDeployment(ctx context.Context, deployment *appsv1.Deployment, ready bool) error {
	status := appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1, UnavailableReplicas: 1}
	available := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable"}
	if ready {
		status.ReadyReplicas, status.AvailableReplicas, status.UnavailableReplicas = 1, 1, 0
		available.Status, available.Reason = corev1.ConditionTrue, "MinimumReplicasAvailable"
	}
	status.Conditions = []appsv1.DeploymentCondition{available}
	if equality.Semantic.DeepEqual(status, deployment.Status) {
		return nil
	}
	now := deployment.DeepCopy()
	now.Status = status
	_, err := k.client.AppsV1().Deployments(now.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil // it is retried
	}
	return err
}

func (k *kubelet) tellService(ctx context.Context, service *corev1.Service, p *pod) error {
	slices := k.client.DiscoveryV1().EndpointSlices(service.Namespace)
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: service.Name + "-0", Namespace: service.Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "test"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{p.address}, Conditions: discoveryv1.EndpointConditions{Ready: &p.ready}}},
	}
	for _, port := range service.Spec.Ports {
		number := port.TargetPort.IntVal
		want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &number, Protocol: &port.Protocol})
	}
	have, err := slices.Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
		return err
	}
	if err != nil || equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) {
		return err
	}
	have.Endpoints = want.Endpoints
	_, err = slices.Update(ctx, have, metav1.UpdateOptions{})
	return err
}

// enter connects to a port of the ready pod that a selector matches.
func (k *kubelet) enter(ctx context.Context, namespace string, selector labels.Selector, port int) (net.Conn, error) {
	k.mu.Lock()
	var found *pod
	for _, p := range k.pods {
		if p.ready && p.namespace == namespace && selector.Matches(labels.Set(p.template.Labels)) {
			found = p
		}
	}
	k.mu.Unlock()
	if found == nil {
		return nil, fmt.Errorf("no pod of %s with %s is ready", namespace, selector)
	}
	return found.dial(ctx, port)
}

// printLogs prints the end of each pod's output.
func (k *kubelet) printLogs() {
	logs, _ := filepath.Glob(filepath.Join(k.dir, "*.log"))
	for _, file := range logs {
		text, _ := os.ReadFile(file)
		const most = 3000
		k.logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-most):])
	}
}
