package inventory

import "strconv"

type machineJSON struct {
	head
	Cluster   string   `json:"cluster,omitempty"`
	Role      string   `json:"role,omitempty"`
	Pool      string   `json:"pool,omitempty"`
	Provider  string   `json:"provider,omitempty"`
	Operator  string   `json:"operator,omitempty"`
	Template  string   `json:"template,omitempty"`
	CPUs      int64    `json:"cpus"`
	Memory    int64    `json:"memoryBytes"`
	Disk      int64    `json:"diskBytes"`
	Host      string   `json:"host,omitempty"`
	VM        string   `json:"vm,omitempty"`
	Power     string   `json:"powerState"`
	Addresses []string `json:"addresses"`
	tail
}

// machineFacts are a Machine's facts with the type of its provider.
type machineFacts struct {
	*Machine
	operator string
}

func machineItem(o *Object, operator string) *Item {
	f := &machineFacts{Machine: o.Facts.(*Machine), operator: operator}
	i := itemOf(TopicMachines, o, machineStatus(f.Machine), f.Phase, f)
	out := machineJSON{
		head: i.head(), tail: i.tail(),
		Cluster: f.Cluster, Role: f.Role, Pool: f.Pool, Provider: f.Provider, Operator: operator,
		Template: f.Template, CPUs: f.CPUs, Memory: f.Memory,
		Host: f.Host, VM: f.VM, Power: f.Power, Addresses: f.Addresses,
	}
	out.Disk = f.disk()
	if out.Addresses == nil {
		out.Addresses = []string{}
	}
	i.JSON = encode(out)
	return i
}

// disk returns the size of all volumes in bytes.
func (f *machineFacts) disk() (sum int64) {
	for _, v := range f.Volumes {
		sum += v.Bytes
	}
	return sum
}

func (f *machineFacts) attribute(name string) string {
	switch name {
	case "cluster":
		return f.Cluster
	case "role":
		return f.Role
	case "pool":
		return f.Pool
	case "provider":
		return f.Provider
	case "operator":
		return f.operator
	case "template":
		return f.Template
	case "host":
		return f.Host
	case "address":
		if len(f.Addresses) > 0 {
			return f.Addresses[0]
		}
	case "cpus":
		return strconv.FormatInt(f.CPUs, 10)
	case "memoryBytes":
		return strconv.FormatInt(f.Memory, 10)
	case "diskBytes":
		return strconv.FormatInt(f.disk(), 10)
	}
	return ""
}

type providerJSON struct {
	head
	Type     string `json:"type"`
	Version  string `json:"version,omitempty"`
	Default  bool   `json:"default,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Machines int32  `json:"machines"`
	CPUs     int64  `json:"cpus,omitempty"`
	Memory   int64  `json:"memoryBytes,omitempty"`
	Free     int64  `json:"memoryFreeBytes,omitempty"`
	Hosts    int    `json:"hosts,omitempty"`
	// Orphans are the virtual machines of the stack whose Machine does not exist.
	Orphans []string `json:"orphans,omitempty"`
	tail
}

func providerItem(o *Object) *Item {
	f := o.Facts.(*Provider)
	i := itemOf(TopicProviders, o, phaseStatus(TopicProviders, f.Phase), f.Phase, f)
	i.JSON = encode(providerJSON{
		head: i.head(), tail: i.tail(), Type: f.Type, Version: f.Version, Default: f.Default, Endpoint: f.Endpoint,
		Machines: f.Machines, CPUs: f.CPUs, Memory: f.Memory, Free: f.Free, Hosts: len(f.Hosts),
		Orphans: f.Orphans.names(),
	})
	return i
}

func (f *Provider) attribute(name string) string {
	switch name {
	case "type":
		return f.Type
	case "version":
		return f.Version
	case "machines":
		return strconv.Itoa(int(f.Machines))
	case "cpus":
		return strconv.FormatInt(f.CPUs, 10)
	case "memoryBytes":
		return strconv.FormatInt(f.Memory, 10)
	case "memoryFreeBytes":
		return strconv.FormatInt(f.Free, 10)
	case "hosts":
		return strconv.Itoa(len(f.Hosts))
	}
	return ""
}
