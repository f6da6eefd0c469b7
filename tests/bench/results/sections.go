package main

import (
	"cmp"
	"fmt"
	"strings"
)

func (r *report) clusters(b *strings.Builder) {
	b.WriteString("## A cluster\n\nOne control plane and two workers, with all functions scaled to zero at first, and simulators without delays.\n\n")
	r.list(b,
		[4]string{"apply to Running, median", "SimpleCluster", "ms-running", " ms"},
		[4]string{"delete to deleted, median", "SimpleCluster", "ms-gone", " ms"},
		[4]string{"requests to the API server for each of its machines", "SimpleCluster", "requests/machine", ""},
		[4]string{"writes among them", "SimpleCluster", "writes/machine", ""},
		[4]string{"many clusters of two nodes at once, until all are Running", "ManyClusters", "ms-running", " ms"},
		[4]string{"requests for each of these", "ManyClusters", "requests/cluster", ""},
		[4]string{"CPU of the functions for each of these", "ManyClusters", "ms-cpu/cluster", " ms"})
	r.byFunction(b, "SimpleCluster", "-requests/machine", "requests for each machine")
	r.waste(b, "SimpleCluster", "machine")
}

// waste writes the requests for each object by verb and resource, and the deliveries of each function
// by what they were good for.
func (r *report) waste(b *strings.Builder, benchmark, thing string) {
	fmt.Fprintf(b, "| function | verb | resource | requests for each %s |\n| --- | --- | --- | ---: |\n", thing)
	for _, name := range r.ordered(benchmark, "-requests/"+thing) {
		if parts := strings.Split(name, ":"); len(parts) == len([]string{"function", "verb", "resource"}) {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", parts[0], parts[1], parts[2], r.get(benchmark, name+"-requests/"+thing))
		}
	}
	fmt.Fprintf(b, "\n| function | deliveries for each %s | found nothing to do | of these without a request | failed, and were delivered again | caused by its own write |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: |\n", thing)
	suffix := "-deliveries/" + thing
	for _, name := range r.ordered(benchmark, ":all"+suffix) {
		figure := func(what string) float64 { return r.figures[benchmark][name+":"+what+suffix] }
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", name, number(figure("all")), number(figure("idle")+figure("free")), number(figure("free")),
			number(figure("redelivered")), number(figure("own")))
	}
	b.WriteString("\n")
}

func (r *report) byFunction(b *strings.Builder, benchmark, suffix, what string) {
	fmt.Fprintf(b, "| function | %s |\n| --- | ---: |\n", what)
	for _, name := range r.ordered(benchmark, suffix) {
		if strings.Contains(name, ":") {
			continue // a part of a function's requests
		}
		fmt.Fprintf(b, "| %s | %s |\n", name, r.get(benchmark, name+suffix))
	}
	b.WriteString("\n")
}

func (r *report) layers(b *strings.Builder) {
	b.WriteString("## Addresses\n\nMany interfaces in one network at once, from the first request to the last address, with all functions scaled to zero at first.\n\n")
	r.table(b, "interfaces", "Addresses", [][2]string{
		{"addresses a second", "addresses/s"}, {"whole burst, ms", "ms-burst"},
		{"CPU of the functions for each, ms", "functions-cpu-ms/address"}, {"CPU of the API server for each, ms", "apiserver-cpu-ms/address"},
		{"their writes alone, a second", "alone/s"}, {"share of that", "of-alone"},
	})
	b.WriteString("*Their writes alone* is the speed of the API server and etcd in the same minute: the number of addresses that it stores per second, with both statuses, " +
		"the Lease and the Event of each, while one client sends nothing else and no function gets an event. It is the limit of the machine.\n\n")
	r.list(b,
		[4]string{"requests of all functions for each address", "AddressRequests", "requests/address", ""},
		[4]string{"writes among them", "AddressRequests", "writes/address", ""})
	r.byFunction(b, "AddressRequests", "-requests/address", "requests for each address")
	r.waste(b, "AddressRequests", "address")
}

func (r *report) machines(b *strings.Builder) {
	b.WriteString("## Machines\n\nOn KubeVirt, with all functions scaled to zero at first.\n\n")
	r.list(b,
		[4]string{"100 Machines at once, until all are Running", "Machines", "ms-burst", " ms"},
		[4]string{"one more Machine, beside hundreds", "Machines", "ms-one-more", " ms"},
		[4]string{"requests of all functions for each", "MachineRequests", "requests/machine", ""},
		[4]string{"writes among them", "MachineRequests", "writes/machine", ""})
	r.byFunction(b, "MachineRequests", "-requests/machine", "requests for each Machine")
	r.waste(b, "MachineRequests", "machine")
	b.WriteString("A hundred Machines at once on a hypervisor that takes a second for each request and fails one of twenty. " +
		"The benchmark fails unless each has exactly one virtual machine, and nothing is left when they are deleted.\n\n")
	r.table(b, "hypervisor", "HundredMachines", [][2]string{
		{"until all are Running, ms", "ms-running"}, {"until all are deleted, ms", "ms-gone"},
		{"requests of create-vm for each", "create-vm-requests/machine"}, {"requests of allocate-ip for each", "allocate-ip-requests/machine"},
	})
}

func (r *report) processes(b *strings.Builder) {
	b.WriteString("## Several processes, several event sources\n\n400 addresses from several processes of each function, which share a constant number of concurrent deliveries, with several event sources. The benchmark fails if an address is allocated twice.\n\n")
	r.table(b, "processes-from-sources", "Processes", [][2]string{{"addresses a second", "addresses/s"}})
	b.WriteString("One process uses all of this machine if backends have no delays. With a slow backend, more processes do more: 32 Machines on a Proxmox VE with a delay of 200 ms, with two concurrent deliveries in each process.\n\n")
	r.table(b, "processes", "SlowHypervisor", [][2]string{{"Machines a second", "machines/s"}})
}

func (r *report) starts(b *strings.Builder) {
	b.WriteString("## Cold starts\n\nFrom the start of a function's program to its first answer, measured alternately with an empty Go HTTP server.\n\n")
	r.table(b, "function", "ColdStart", [][2]string{
		{"program, MB", "MB"}, {"start, ms", "ms-start"}, {"CPU, ms", "ms-cpu"}, {"ratio to an empty server", "x-floor"},
	})
	r.list(b,
		[4]string{"kubectl viti: program", "Plugin", "MB", " MB"},
		[4]string{"kubectl viti: from its start to its end, without a request", "Plugin", "ms-start", " ms"})
}

func (r *report) idle(b *strings.Builder) {
	b.WriteString("## Idle\n\nWith a Running cluster, without changes.\n\n")
	r.list(b,
		[4]string{"requests to the API server a minute", "Idle", "requests/min", ""},
		[4]string{"writes among them", "Idle", "writes/min", ""},
		[4]string{"renewals of the Leases of heartbeats among them", "Idle", "heartbeats/min", ""})
}

func (r *report) gateway(b *strings.Builder) {
	b.WriteString("## Gateway\n\n10,000 clusters with 60,000 machines; streams to 10,000 clients.\n\n")
	r.list(b,
		[4]string{"start to listening", "GatewayScale", "ms-to-listening", " ms"},
		[4]string{"start to ready", "GatewayScale", "ms-to-ready", " ms"},
		[4]string{"from a change to a client", "GatewayScale", "ms-change-to-stream", " ms"},
		[4]string{"CPU for a change", "GatewayScale", "ms-cpu/change", " ms"},
		[4]string{"memory, highest", "GatewayScale", "MB-highest", " MB"},
		[4]string{"an event to 10,000 clients, the median client", "GatewayStreams", "ms-p50", " ms"},
		[4]string{"memory with these clients, highest", "GatewayStreams", "MB-highest", " MB"},
		[4]string{"5,000 hostile connections: memory that they add at most", "GatewayFlood", "MB-added", " MB"},
		[4]string{"latency of other clients during the attack, median, as a ratio", "GatewayFlood", "latency-ratio", ""})
	r.table(b, "request", "GatewayRequests", [][2]string{{"CPU, µs", "µs-cpu/request"}})
}

func (r *report) stock(b *strings.Builder) {
	fmt.Fprintf(b, "## Thousands of machines\n\nThe stack starts on an API server with %s machines in finished clusters of ten, which are %s objects. "+
		"Each row begins when no event is on its way, and *quiet* is when none is again. A full round of resync checks each cluster, and a sixth of the machines. "+
		"In the storm every machine changes once, as fast as etcd writes.\n\n"+
		"| | done, s | quiet, s | requests of all functions | writes among them | deliveries |\n| --- | ---: | ---: | ---: | ---: | ---: |\n", r.get("Stock", "machines"), r.get("Stock", "objects"))
	for _, row := range [][2]string{
		{"first-round", "the round after the start"}, {"round", "a full round"}, {"machine", "one more machine"}, {"cold-machine", "one more, with all functions at zero"},
		{"cluster", "one more cluster of two nodes"}, {"deletion", "its deletion"}, {"storm", "the storm"},
	} {
		done := r.get("Stock", "s-"+row[0])
		if strings.HasSuffix(row[0], "round") {
			done = "" // it ends with the last delivery
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", row[1], done, r.get("Stock", "s-until-quiet-"+row[0]), r.get("Stock", "requests-"+row[0]), r.get("Stock", "writes-"+row[0]), r.get("Stock", "deliveries-"+row[0]))
	}
	fmt.Fprintf(b, "\nThe start took %s s. Memory of each process, at most:\n\n| process | MB |\n| --- | ---: |\n", r.get("Stock", "s-start"))
	for _, name := range r.ordered("Stock", "-MB") {
		fmt.Fprintf(b, "| %s | %s |\n", name, r.get("Stock", name+"-MB"))
	}
	b.WriteString("\n")
}

func (r *report) load(b *strings.Builder) {
	filled := map[string]string{"0.25": "A quarter", "0.5": "Half", "1": "All"}[r.get("Load", "filled")]
	b.WriteString("## Load\n\nA data centre is filled with a quarter, a half and the whole of " + r.get("Load", "size") + " × (1,000 networks, 10,000 addresses, 2,000 machines, and 200 clusters of two of them). " +
		"A column of dashes did not fit into the time. The benchmark fails unless every address is unique and every machine has one virtual machine.\n\n| | a quarter | half | whole |\n| --- | ---: | ---: | ---: |\n")
	for _, row := range []struct{ what, unit string }{
		{"%s: created per second", "%s/s@"}, {"%s: requests for each", "requests/%s@"}, {"%s: CPU of all processes for each, ms", "cpu-ms/%s@"},
	} {
		for _, kind := range []string{"network", "address", "machine", "cluster"} {
			cells := []string{fmt.Sprintf(row.what, kind)}
			for _, part := range []string{"0.25", "0.5", "1"} {
				cells = append(cells, r.get("Load", fmt.Sprintf(row.unit, kind)+part))
			}
			fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	fmt.Fprintf(b, "\nTime grew with the number of objects to the power of %s. %s of it took %s s, with these processes:\n\n| process | CPU, s | memory at most, MB |\n| --- | ---: | ---: |\n",
		r.get("Load", "growth-exponent"), cmp.Or(filled, "–"), r.get("Load", "s-whole"))
	for _, name := range r.ordered("Load", "-cpu-s") {
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, r.get("Load", name+"-cpu-s"), r.get("Load", name+"-MB"))
	}
	b.WriteString("\nThe process with the most CPU is the next limit. [Scale](../../docs/scale.md) says which setting to change then.\n\n")
}

// operators writes the comparison with the public operators.
func (r *report) operators(b *strings.Builder) {
	b.WriteString(`## Compared with the public operators

The public Vitistack operators do the same work with controllers that poll. Their figures were taken before this stack was built, and are the
only ones on this page that its benchmarks do not measure: against a bare kube-apiserver 1.34.4 with etcd on two busy cores, with backends
that answer at once. Compare counts; their times are mostly waits and limits that are written into their code (the last column). To repeat it,
run them against such an API server with an audit log, apply the same objects, and count its lines by user agent until all are ready.

| work | public operators | this stack | why theirs |
| --- | --- | ---: | --- |
`)
	for _, row := range [][6]string{
		{"requests for each address of a burst of 200", "5.7, and 57 different addresses of 200", "AddressRequests", "requests/address", "", "cached lists, 5 workers, no claim"},
		{"a burst of 1,000 addresses", "121 to 198 s; with 5 workers 325 different ones, with 1 usually all", "Addresses/1000", "ms-burst", " ms", "every allocation reads all others"},
		{"100 Machines on KubeVirt", "96 s", "Machines", "ms-burst", " ms", "the client's default limit of 5 requests a second, polling"},
		{"one more Machine beside 100", "83 to 85 s", "Machines", "ms-one-more", " ms", "the same queue polls everything"},
		{"a cluster with one control plane and two workers", "74 to 103 s; one run in four stuck", "SimpleCluster", "ms-running", " ms", "about 60 s of fixed waits"},
		{"idle with one cluster: requests a minute", "2,084 to 3,723", "Idle", "requests/min", "", "no filter for changes"},
		{"idle with one cluster: writes a minute", "504 to 906", "Idle", "writes/min", "", "the status is written at every reconciliation"},
	} {
		fmt.Fprintf(b, "| %s | %s | %s%s | %s |\n", row[0], row[1], r.get(row[2], row[3]), row[4], row[5])
	}
	b.WriteString("\nThis stack needs more requests for an address than they do: it reads the live objects, and claims each address by a name. " +
		"A benchmark of it fails if two holders have one address.\n\n")
}

func (r *report) commands(b *strings.Builder) {
	b.WriteString("## Commands\n\n| command | commit | load average before | took |\n| --- | --- | ---: | ---: |\n")
	for _, run := range r.runs {
		commit := "this"
		if run.commit != r.commit {
			commit = "`" + run.commit + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", run.command, commit, run.load, run.took)
	}
}
