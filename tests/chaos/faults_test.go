package chaos

import "time"

// changeEventFaults sets the faults of event delivery: lost, duplicated and late events.
func changeEventFaults(a *generator) func(*env) {
	all := []EventFaults{
		{}, {Drop: 0.2}, {Duplicate: 1}, {Delay: 2 * time.Second}, {Drop: 0.3, Duplicate: 0.5, Delay: 5 * time.Second}, {Drop: 1},
	}
	if a.long {
		all = append(all, EventFaults{Delay: 3 * time.Minute}, EventFaults{Duplicate: 1, Delay: 2 * time.Minute})
	}
	faults := all[a.random.IntN(len(all))]
	return func(w *env) {
		w.record("the faults of events: %+v", faults)
		w.n.SetFaults(faults)
		w.lossy = w.lossy || faults.Drop > 0
	}
}

// failRequests makes the API server reject requests and lose answers, and kills functions at a write.
func failRequests(a *generator) func(*env) {
	all := []RequestFaults{
		{}, {Conflict: 0.3}, {Throttle: 0.2}, {Timeout: 0.1}, {Lost: 0.1}, {Kill: 0.05}, {Slow: 0.5},
		{Conflict: 0.1, Throttle: 0.05, Timeout: 0.05, Lost: 0.05, Kill: 0.02, Slow: 0.1},
	}
	faults := all[a.random.IntN(len(all))]
	return func(w *env) {
		w.record("the faults of requests: %+v", faults)
		w.api.SetFaults(faults)
	}
}

func killFunction(a *generator) func(*env) { return kill(a.of(functions...)) }

func killSource(a *generator) func(*env) {
	return kill(a.of("apiserversource-vitistack", "apiserversource-vitistack-resources"))
}

func killAPIServer(*generator) func(*env)  { return kill("kube-apiserver") }
func killEtcd(*generator) func(*env)       { return kill("etcd") }
func killGateway(*generator) func(*env)    { return kill("gateway") }
func killSimulators(*generator) func(*env) { return kill("sim") }

func kill(name string) func(*env) {
	return func(w *env) {
		w.record("kill -9 %s", name)
		if name == "sim" {
			w.forgetCrashes()
		}
		_ = w.e.KillProcess(name)
	}
}

// restartAll kills every process at once, including the broker with its events, and restarts the
// engine on its state.
func restartAll(*generator) func(*env) {
	return func(w *env) {
		w.record("kill -9 everything, and restart it")
		w.lossy = true
		w.forgetCrashes()
		w.e.Kill()
		w.e.Run()
		w.n.SetBroker(w.e.Ingress())
	}
}

// faultRules are the fault rules of each simulator: slow answers, errors before and after the
// effect, and wrong answers.
var faultRules = map[string][]string{
	"talos": {
		`[]`, `[{"latency":"300ms","rate":0.5}]`, `[{"operation":"MachineService/*","error":"Unavailable","rate":0.1}]`,
		`[{"operation":"MachineService/*","error":"Unavailable","after":true,"rate":0.1}]`, `[{"error":"reset","after":true,"rate":0.1}]`,
	},
	"kubevirt": {
		`[]`, `[{"latency":"500ms","rate":0.5}]`, `[{"operation":"admit","error":"503","rate":0.3}]`,
		`[{"operation":"vm/start","error":"timeout","after":true,"rate":0.5},{"operation":"pvc/bind","error":"timeout","after":true,"rate":0.5}]`,
		`[{"operation":"pvc/bind","error":"out of space","rate":0.5},{"operation":"vmi/schedule","error":"0/3 nodes are available","rate":0.5}]`,
		`[{"operation":"vmi/run","error":"guest panicked","after":true,"times":1}]`,
	},
	"proxmox": {
		`[]`, `[{"latency":"1s","rate":0.5}]`, `[{"error":"503","rate":0.2}]`, `[{"error":"reset","after":true,"rate":0.1}]`,
		`[{"error":"got timeout","after":true,"rate":0.1}]`, `[{"operation":"task/*","error":"no space left","rate":0.3}]`,
		`[{"operation":"task/*","error":"interrupted by signal","after":true,"rate":0.3}]`,
		`[{"operation":"task/qmcreate","error":"volume 'local:iso/none.iso' does not exist"}]`, `[{"operation":"task/qmstart","error":"start failed: QEMU exited with code 1"}]`,
	},
	"nam": {
		`[]`, `[{"latency":"3s"}]`, `[{"error":"503","rate":0.5}]`, `[{"error":"500","after":true,"rate":0.5}]`, `[{"error":"drop","after":true,"rate":0.5}]`,
		`[{"error":"garbage","rate":0.5}]`, `[{"error":"lie-gateway"}]`, `[{"error":"lie-uid"}]`, `[{"error":"lie-hostbits"}]`, `[{"error":"lie-empty"}]`,
	},
	"netbox": {
		`[]`, `[{"latency":"3s"}]`, `[{"error":"503","rate":0.3}]`, `[{"error":"502","after":true,"rate":0.3}]`, `[{"error":"drop","after":true,"rate":0.3}]`,
		`[{"error":"garbage","rate":0.3}]`,
	},
	// A real Kea has no fault plan.
	"kea": {`[]`, `[{"latency":"1s"}]`, `[{"error":"503","rate":0.3}]`, `[{"error":"no luck","after":true,"rate":0.3}]`},
}

// simulators are the simulators in faultRules, in a fixed order.
var simulators = []string{"talos", "kubevirt", "proxmox", "nam", "netbox", "kea"}

func failBackend(a *generator) func(*env) {
	name := a.of(simulators...)
	rule := a.of(faultRules[name]...)
	return func(w *env) {
		w.record("the faults of %s: %s", name, rule)
		w.e.SetFaults(name, rule)
	}
}

// changeClock makes a function's clock wrong by up to three minutes.
func changeClock(a *generator) func(*env) {
	if !a.long {
		return nil
	}
	function, off := a.of(functions...), time.Duration(a.random.IntN(360)-180)*time.Second
	return func(w *env) {
		w.record("the clock of %s is off by %s", function, off)
		w.clocks.Set(function, off)
	}
}
