// Cni is the CNI plugin flannel: it reads the subnet of the node that flanneld wrote, and delegates to another plugin,
// which is bridge with host-local by default. https://www.cni.dev/docs/spec/ has the protocol.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// subnetFile is the file of flanneld, in the form of a shell script.
const subnetFile = "/run/flannel/subnet.env"

// config is the part of a network's configuration that the plugin reads.
type config struct {
	CNIVersion string         `json:"cniVersion"`
	Name       string         `json:"name"`
	Delegate   map[string]any `json:"delegate"`
}

func main() {
	err := run(os.Getenv("CNI_COMMAND"), os.Stdin, os.Stdout)
	if err == nil {
		return
	}
	const other = 100 // the first code that the specification leaves to plugins
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"code": other, "msg": err.Error()})
	os.Exit(1)
}

func run(command string, in io.Reader, out io.Writer) error {
	switch command {
	case "VERSION":
		return json.NewEncoder(out).Encode(map[string]any{"cniVersion": "1.0.0", "supportedVersions": []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0"}})
	case "ADD", "DEL":
	default:
		return nil
	}
	var c config
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return fmt.Errorf("read the configuration of the network: %w", err)
	}
	subnet, err := os.ReadFile(subnetFile)
	if err != nil && command == "DEL" {
		return nil // a pod without a subnet has no interface
	}
	if err != nil {
		return fmt.Errorf("read the subnet of the node: %w", err)
	}
	plugin, delegated, err := delegate(c, string(subnet))
	if err != nil {
		return err
	}
	return invoke(plugin, delegated, out)
}

// delegate returns the plugin of a network, and its configuration with the subnet.
func delegate(c config, subnet string) (plugin string, delegated []byte, err error) {
	values := map[string]string{}
	for line := range strings.Lines(subnet) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	prefix, err := netip.ParsePrefix(values["FLANNEL_SUBNET"])
	if err != nil {
		return "", nil, fmt.Errorf("read FLANNEL_SUBNET of %s: %w", subnetFile, err)
	}
	d := map[string]any{"type": "bridge", "ipMasq": values["FLANNEL_IPMASQ"] != "true"}
	for key, value := range c.Delegate {
		d[key] = value
	}
	if mtu, err := strconv.Atoi(values["FLANNEL_MTU"]); err == nil {
		d["mtu"] = mtu
	}
	d["name"], d["cniVersion"] = c.Name, c.CNIVersion
	d["ipam"] = map[string]any{
		"type": "host-local", "ranges": [][]map[string]string{{{"subnet": prefix.Masked().String()}}},
		"routes": []map[string]string{{"dst": values["FLANNEL_NETWORK"]}},
	}
	delegated, err = json.Marshal(d)
	return fmt.Sprint(d["type"]), delegated, err
}

// invoke runs another plugin of CNI_PATH with the same environment.
func invoke(plugin string, config []byte, out io.Writer) error {
	for _, folder := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		path := filepath.Join(folder, plugin)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		command := exec.Command(path)
		command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(config), out, os.Stderr
		if err := command.Run(); err != nil {
			// The plugin has written its error as JSON.
			os.Exit(1)
		}
		return nil
	}
	return fmt.Errorf("find the plugin %q in CNI_PATH %q", plugin, os.Getenv("CNI_PATH"))
}
