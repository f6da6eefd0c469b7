package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// TestPreviewSaysTheSame compares what a preview says of a Machine with what the function decides about its size, its
// images and its MachineProvider.
func TestPreviewSaysTheSame(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	allowed := allowedImages(func(name string) string { return map[string]string{"ALLOWED_IMAGE_HOSTS": "images.example.com"}[name] })
	f := newFunction(s.Kube, nil, nil)
	f.images = allowed
	providers, classes := &v1alpha1.MachineProviderList{}, &v1alpha1.MachineClassList{}
	for _, err := range []error{s.Kube.List(t.Context(), "", "", providers), s.Kube.List(t.Context(), "", "", classes)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range providers.Items {
		providers.Items[i].Status = v1alpha1.MachineProviderStatus{} // which other tests change
	}
	kubevirt := &v1alpha1.ProviderReference{Name: "kubevirt"}
	world := preview.World{
		Providers: providers.Items, Classes: classes.Items, Settings: &preview.Settings{ImageHosts: allowed},
		NamespaceLabels: func(namespace string) (map[string]string, error) { return s.Kube.LabelsOf(t.Context(), namespace)() },
	}
	for name, tc := range map[string]struct {
		why    string
		spec   v1alpha1.MachineSpec
		reason string
	}{
		"Allowed":   {"the host of the image is allowed", v1alpha1.MachineSpec{Template: "small", ProviderRef: kubevirt, OS: &v1alpha1.MachineOS{ImageID: "https://images.example.com/a.qcow2"}}, ""},
		"Factory":   {"the image factory is allowed", v1alpha1.MachineSpec{Template: "small", ProviderRef: kubevirt, OS: &v1alpha1.MachineOS{ISOURI: "https://factory.talos.dev/a.iso"}}, ""},
		"Image":     {"the host of the image is not allowed", v1alpha1.MachineSpec{Template: "small", ProviderRef: kubevirt, OS: &v1alpha1.MachineOS{ImageID: "https://elsewhere.example.com/a.qcow2"}}, "ImageNotAllowed"},
		"Installer": {"the host of the installer is not allowed", v1alpha1.MachineSpec{Template: "small", ProviderRef: kubevirt, OS: &v1alpha1.MachineOS{ISOURI: "http://169.254.169.254/a.iso"}}, "ImageNotAllowed"},
		"Template":  {"there is no such size", v1alpha1.MachineSpec{Template: "none-of-these"}, "TemplateNotFound"},
		"Size":      {"nothing gives a size", v1alpha1.MachineSpec{}, "InvalidSpec"},
		"Provider":  {"there is no such MachineProvider", v1alpha1.MachineSpec{Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: "none-of-these"}}, "MachineProviderNotFound"},
	} {
		m := &v1alpha1.Machine{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine"}, ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web"}, Spec: tc.spec}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
		if err != nil {
			t.Fatal(err)
		}
		p := preview.Make([]preview.Document{{Index: 1, Object: &unstructured.Unstructured{Object: content}}}, world)
		if _, err = f.resolveSize(t.Context(), m); err == nil {
			_, err = f.providers.choose(t.Context(), m)
		}
		problem, _ := reconcile.AsUserError(err)
		if problem.Reason != tc.reason || err != nil && problem.Reason == "" {
			t.Errorf("%s: %s: the function has %v, want %q", name, tc.why, err, tc.reason)
		}
		findings := p.Errors
		for _, warning := range p.Warnings { // the namespace has no network that a preview could see
			if warning.Pointer != "/spec/networkNamespaceName" {
				findings = append(findings, warning)
			}
		}
		switch {
		case tc.reason == "" && len(findings) > 0:
			t.Errorf("%s: %s: the preview has %+v, and the function accepts it", name, tc.why, findings)
		case tc.reason != "" && (len(findings) != 1 || findings[0].Reason != problem.Reason || findings[0].Detail != problem.Message):
			t.Errorf("%s: %s: the preview has %+v, and the function %v", name, tc.why, findings, problem)
		}
	}
}
