// Provision-network makes the network segment of each NetworkNamespace: layer 1
// of the stack.
package main

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

func main() {
	events.Run("provision-network", func() (events.Handler, error) {
		config, err := kube.Config()
		if err != nil {
			return nil, err
		}
		client, err := kube.New(config, "provision-network", kinds)
		if err != nil {
			return nil, err
		}
		f := &function{kube: client, sources: map[string]source{
			v1alpha2.ProviderManual: manual{},
		}}
		return f.handle, nil
	})
}

func kinds(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1alpha2.AddToScheme, kube.Events} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	return nil
}
