package talos

import (
	"fmt"
	"net"
	"strconv"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime"
)

// CheckEventSink returns the address to which nodes send their events, in the form host:port. An empty address, for none, is valid.
func CheckEventSink(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(address)
	number, invalid := strconv.ParseUint(port, 10, 16)
	if err != nil || invalid != nil || host == "" || number == 0 {
		return "", fmt.Errorf("%q is not an address of the form host:port: write the address at which nodes reach the gateway, such as 10.0.0.5:9993", address)
	}
	return address, nil
}

// addEventSink adds the document EventSinkConfig, which Talos has since 1.5. Patches come later, so that theirs wins.
func addEventSink(p config.Provider, c ClusterConfig) (config.Provider, error) {
	if c.EventSink == "" || !c.Contract.Greater(config.TalosVersion1_4) {
		return p, nil
	}
	sink := runtime.NewEventSinkV1Alpha1()
	sink.Endpoint = c.EventSink
	return container.New(append(p.Documents(), sink)...)
}
