// Busy writes the manifests of a busy data centre: twenty clusters with two hundred machines in total,
// and a dozen objects that are stuck, each for a reason of its own. make run TOUR=busy applies them.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"
)

// team is a namespace with its network and its clusters.
type team struct {
	Name string
	// Third is the third byte of the network's addresses, and its VLAN. They are loopback addresses,
	// so that the simulated machines can be reached from this machine only.
	Third int
	// Last is the last address of the pool.
	Last     int
	Excluded []string
	Clusters []cluster
}

type cluster struct {
	Name, Environment string
	ControlPlanes     int
	Workers           int
	// Version is the Kubernetes version.
	Version string
}

// teams have twenty clusters with two hundred machines. Two of them are stuck: the pool of team labs
// is too small for its cluster, and team legacy requests a version that does not exist.
var teams = []team{
	{Name: "commerce", Third: 1, Last: 250, Excluded: []string{"127.80.1.100-127.80.1.119"}, Clusters: []cluster{
		{"shop", "prod", 3, 12, ""}, {"shop-test", "test", 1, 3, ""}, {"billing", "prod", 3, 6, ""}, {"search", "prod", 3, 9, ""},
	}},
	{Name: "media", Third: 2, Last: 250, Clusters: []cluster{
		{"streaming", "prod", 3, 24, ""}, {"transcoding", "prod", 3, 21, ""}, {"media-test", "test", 1, 2, ""},
	}},
	{Name: "insight", Third: 3, Last: 250, Excluded: []string{"127.80.3.128/26"}, Clusters: []cluster{
		{"analytics", "prod", 3, 30, ""}, {"warehouse", "prod", 3, 8, ""}, {"notebooks", "dev", 1, 4, ""},
	}},
	{Name: "edge", Third: 4, Last: 250, Clusters: []cluster{
		{"edge-oslo", "prod", 1, 4, ""}, {"edge-bergen", "prod", 1, 4, ""}, {"edge-tromso", "prod", 1, 4, ""}, {"edge-test", "test", 1, 1, ""},
	}},
	{Name: "platform", Third: 5, Last: 250, Clusters: []cluster{
		{"identity", "prod", 3, 4, ""}, {"mail", "prod", 3, 4, ""}, {"builds", "prod", 1, 10, ""},
	}},
	{Name: "maps", Third: 6, Last: 250, Clusters: []cluster{{"tiles", "prod", 3, 5, ""}}},
	{Name: "labs", Third: 7, Last: 14, Clusters: []cluster{{"experiments", "dev", 3, 6, ""}}},
	{Name: "archive", Third: 8, Last: 250, Clusters: []cluster{{"legacy", "prod", 1, 2, "1.99"}}},
}

var manifests = template.Must(template.New("manifests").Funcs(template.FuncMap{"hypervisors": hypervisors}).Parse(`
{{- range hypervisors}}---
apiVersion: v1
kind: Node
metadata:
  name: {{.}}
  labels: {kubevirt.io/schedulable: "true", kubernetes.io/hostname: {{.}}, kubernetes.io/arch: amd64, kubernetes.io/os: linux}
status:
  capacity: {cpu: "48", memory: 256Gi, pods: "110"}
  allocatable: {cpu: "47", memory: 248Gi, pods: "110"}
  conditions:
    - {type: Ready, status: "True", reason: KubeletReady, lastTransitionTime: "2026-01-02T03:04:05Z", lastHeartbeatTime: "2026-01-02T03:04:05Z"}
  nodeInfo: {architecture: amd64, operatingSystem: linux, osImage: simulated hypervisor, kubeletVersion: v1.35.4, kernelVersion: 6.12.0,
    containerRuntimeVersion: containerd://2.1.0, bootID: "", kubeProxyVersion: "", machineID: "", systemUUID: ""}
{{end}}
{{- range .}}{{$team := .}}---
apiVersion: v1
kind: Namespace
metadata: {name: {{.Name}}}
---
apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: {{.Name}}-network, namespace: {{.Name}}}
spec:
  datacenterIdentifier: no-west-az1
  supervisorIdentifier: {{.Name}}
  networkProvisioning:
    provider: manual
    manual: {ipv4CIDR: 127.80.{{.Third}}.0/24, ipv4Gateway: 127.80.{{.Third}}.1, vlanId: {{.Third}}}
  ipAllocation:
    type: static
    static:
      ipv4RangeStart: 127.80.{{.Third}}.10
      ipv4RangeEnd: 127.80.{{.Third}}.{{.Last}}
      dns: [127.80.{{.Third}}.1]
      excludedAddresses: [{{range $n, $a := .Excluded}}{{if $n}}, {{end}}"{{$a}}"{{end}}]
{{range .Clusters}}---
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: {{.Name}}, namespace: {{$team.Name}}}
spec:
  data: {provider: talos, environment: {{.Environment}}, datacenter: no-west-az1, project: {{$team.Name}}, region: west, zone: az1}
  topology:
    version: "{{or .Version "1.33"}}"
    controlplane: {replicas: {{.ControlPlanes}}, template: large}
    workers:
      - {name: workers, replicas: {{.Workers}}, template: large}
{{end}}{{end}}---
# What is stuck, each for a reason of its own.
apiVersion: v1
kind: Namespace
metadata: {name: archive-cold}
---
apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: from-nowhere, namespace: archive-cold}
spec:
  datacenterIdentifier: no-west-az1
  supervisorIdentifier: cold
  networkProvisioning: {provider: corporate-ipam}
  ipAllocation: {type: static}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: cold-storage, namespace: archive-cold}
spec: {template: small}
---
apiVersion: v1
kind: Namespace
metadata: {name: desk}
---
apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: overlaps, namespace: desk}
spec:
  datacenterIdentifier: no-west-az1
  supervisorIdentifier: desk
  networkProvisioning:
    provider: manual
    manual: {ipv4CIDR: 127.80.1.128/25, ipv4Gateway: 127.80.1.129, vlanId: 1}
  ipAllocation: {type: static}
---
apiVersion: v1
kind: Namespace
metadata: {name: homeless}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: without-network, namespace: homeless}
spec: {template: small}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: unknown-template, namespace: commerce}
spec: {template: gigantic}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: unknown-provider, namespace: commerce}
spec: {template: small, providerRef: {name: vsphere}}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: unknown-storage, namespace: media}
spec: {template: small, disks: [{name: data, size: 10Gi, storageClass: gold}]}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: too-large, namespace: insight}
spec: {template: large, resources: {memory: {size: 2Ti}}}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: without-secret, namespace: platform}
spec: {template: small, cloudInit: {secretRef: {name: not-there}}}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: switched-off, namespace: platform}
spec: {template: small, powerState: Stopped}
---
apiVersion: vitistack.io/v1alpha2
kind: IPAllocation
metadata: {name: printer, namespace: commerce}
spec: {networkNamespaceName: commerce-network, requestedAddress: 127.80.1.77}
---
apiVersion: vitistack.io/v1alpha2
kind: IPAllocation
metadata: {name: outside, namespace: commerce}
spec: {networkNamespaceName: commerce-network, requestedAddress: 127.80.1.5}
---
apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata: {name: proxmox-oslo}
spec:
  type: proxmox
  endpoint: {url: "https://127.80.255.1:8006"}
  credentialsRef: {name: proxmox-oslo, namespace: vitistack-system}
`))

// hypervisors are nodes in addition to the three of the simulator.
func hypervisors() []string {
	return []string{"hypervisor-4", "hypervisor-5", "hypervisor-6", "hypervisor-7"}
}

func write(w io.Writer) error {
	var b strings.Builder
	if err := manifests.Execute(&b, teams); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
