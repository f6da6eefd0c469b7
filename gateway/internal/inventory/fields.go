package inventory

import (
	"reflect"
	"strings"
)

// listed maps each topic to the struct that its list is encoded from.
var listed = map[Topic]reflect.Type{
	TopicNetworks:    reflect.TypeFor[networkJSON](),
	TopicAddresses:   reflect.TypeFor[addressJSON](),
	TopicAllocations: reflect.TypeFor[allocationJSON](),
	TopicMachines:    reflect.TypeFor[machineJSON](),
	TopicProviders:   reflect.TypeFor[providerJSON](),
	TopicHosts:       reflect.TypeFor[hostJSON](),
	TopicVMs:         reflect.TypeFor[vmJSON](),
	TopicClusters:    reflect.TypeFor[clusterListJSON](),
	TopicBackups:     reflect.TypeFor[backupJSON](),
	TopicTemplates:   reflect.TypeFor[templateJSON](),
	TopicOperators:   reflect.TypeFor[OperatorModel](),
}

// Fields returns the names of the fields of a topic's list.
func Fields(topic Topic) []string { return fieldsOf(listed[topic]) }

func fieldsOf(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if f.Anonymous {
			names = append(names, fieldsOf(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
