package manifest

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	imageScheme = "ko://"
	maxScale    = "autoscaling.knative.dev/max-scale"
	// Knative's default of timeoutSeconds.
	defaultTimeoutSeconds = 300
	// Knative's default of responseStartTimeoutSeconds of a Service with a larger timeoutSeconds
	// (https://github.com/knative/serving/blob/main/pkg/apis/serving/v1/revision_defaults.go).
	defaultResponseStartSeconds = 300
)

// Program is a container that the engine runs as a process.
type Program struct {
	Kind            schema.GroupVersionKind // of the object it comes from
	Namespace, Name string
	Labels          map[string]string // of the object
	PodLabels       map[string]string
	Binary          string // file name: the last element of the image
	ServiceAccount  string
	Container       corev1.Container
	Volumes         []corev1.Volume

	// Of a Knative Service only:
	Concurrency    int // 0 is no limit
	MaxScale       int // 0 is no limit
	TimeoutSeconds int
	// ResponseStartSeconds is the time until an answer begins. 0 is no limit besides TimeoutSeconds.
	ResponseStartSeconds int
}

// knativeService is the supported part of a serving.knative.dev/v1 Service. The API server validates the rest with the CRD.
type knativeService struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Template struct {
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				corev1.PodSpec       `json:",inline"`
				ContainerConcurrency *int64 `json:"containerConcurrency"`
				TimeoutSeconds       *int64 `json:"timeoutSeconds"`
				ResponseStartSeconds *int64 `json:"responseStartTimeoutSeconds"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// ReadProgram reads the program of a Knative Service or a Deployment.
func ReadProgram(object *unstructured.Unstructured) (Program, error) {
	if object.GetKind() == "Deployment" {
		return deploymentProgram(object)
	}
	return functionProgram(object)
}

func functionProgram(object *unstructured.Unstructured) (Program, error) {
	service := &knativeService{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, service); err != nil {
		return Program{}, fmt.Errorf("decode Service: %w", err)
	}
	template := service.Spec.Template
	program, err := newProgram(object, template.Labels, template.Spec.PodSpec)
	if err != nil {
		return Program{}, err
	}
	program.TimeoutSeconds = defaultTimeoutSeconds
	if n := template.Spec.TimeoutSeconds; n != nil {
		program.TimeoutSeconds = int(*n)
	}
	if n := template.Spec.ResponseStartSeconds; n != nil {
		program.ResponseStartSeconds = int(*n)
	} else if program.TimeoutSeconds > defaultResponseStartSeconds {
		program.ResponseStartSeconds = defaultResponseStartSeconds
	}
	if n := template.Spec.ContainerConcurrency; n != nil {
		program.Concurrency = int(*n)
	}
	if text, ok := template.Annotations[maxScale]; ok {
		if program.MaxScale, err = strconv.Atoi(text); err != nil || program.MaxScale < 0 {
			return Program{}, fmt.Errorf("read annotation %s: %q is not a number of pods", maxScale, text)
		}
	}
	return program, nil
}

func deploymentProgram(object *unstructured.Unstructured) (Program, error) {
	deployment := &appsv1.Deployment{}
	if err := decode(object, deployment); err != nil {
		return Program{}, err
	}
	return newProgram(object, deployment.Spec.Template.Labels, deployment.Spec.Template.Spec)
}

func newProgram(object *unstructured.Unstructured, podLabels map[string]string, pod corev1.PodSpec) (Program, error) {
	if len(pod.Containers) != 1 || len(pod.InitContainers) > 0 {
		return Program{}, errors.New("the local engine runs one container and no init containers per pod")
	}
	container := pod.Containers[0]
	if !strings.HasPrefix(container.Image, imageScheme) {
		return Program{}, fmt.Errorf("image %q: the local engine runs images of the form %s<import path>, from the binary of that name", container.Image, imageScheme)
	}
	if len(container.Command) > 0 {
		return Program{}, errors.New("command: the local engine runs the image's own program; use args")
	}
	account := pod.ServiceAccountName
	if account == "" {
		account = "default"
	}
	return Program{
		Kind: object.GroupVersionKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
		Labels: object.GetLabels(), PodLabels: podLabels,
		Binary: path.Base(container.Image), ServiceAccount: account, Container: container, Volumes: pod.Volumes,
	}, nil
}

// ReadyPath returns the path of the HTTP readiness probe, or an empty string.
func (p Program) ReadyPath() string {
	if probe := p.Container.ReadinessProbe; probe != nil && probe.HTTPGet != nil {
		return probe.HTTPGet.Path
	}
	return ""
}
