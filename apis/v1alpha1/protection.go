package v1alpha1

import "fmt"

// UnprotectCommand returns the kubectl command that sets spec.protected of the Machine to false.
func (m *Machine) UnprotectCommand() string {
	return fmt.Sprintf(`kubectl patch machine %s --namespace %s --type merge --patch '{"spec":{"protected":false}}'`, m.Name, m.Namespace)
}
