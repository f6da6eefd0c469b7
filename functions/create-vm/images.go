package main

import (
	"github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/events/outbound"
)

// allowedImages returns the hosts from which images may come.
func allowedImages(getenv func(string) string) outbound.Rules {
	return outbound.Parse(plan.ImageHosts(getenv(plan.ImageFactoryVariable), getenv(plan.ImageHostsVariable), getenv(outbound.Variable)))
}
