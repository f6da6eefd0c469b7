package controller

import _ "embed"

// cdiDefinitions are those of the kinds of CDI that virt-controller watches, and that the simulator has no
// objects of. They have no schemas, because nothing writes such objects.
//
//go:embed cdi.yaml
var cdiDefinitions []byte
