package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func changeWeather(a *author) func(*env) {
	all := []Weather{
		{}, {Drop: 0.2}, {Duplicate: 1}, {Delay: 2 * time.Second}, {Drop: 0.3, Duplicate: 0.5, Delay: 5 * time.Second}, {Drop: 1},
	}
	if a.long {
		all = append(all, Weather{Delay: 3 * time.Minute}, Weather{Duplicate: 1, Delay: 2 * time.Minute})
	}
	weather := all[a.random.IntN(len(all))]
	return func(w *env) {
		w.tell("the weather of events: %+v", weather)
		w.n.SetWeather(weather)
		w.lossy = w.lossy || weather.Drop > 0
	}
}

// troubleAPI makes the API server refuse, forget and lose answers, or functions end
// at a write.
func troubleAPI(a *author) func(*env) {
	all := []Trouble{
		{}, {Conflict: 0.3}, {Throttle: 0.2}, {Timeout: 0.1}, {Lost: 0.1}, {Kill: 0.05}, {Slow: 0.5},
		{Conflict: 0.1, Throttle: 0.05, Timeout: 0.05, Lost: 0.05, Kill: 0.02, Slow: 0.1},
	}
	trouble := all[a.random.IntN(len(all))]
	return func(w *env) {
		w.tell("the API server troubles functions: %+v", trouble)
		w.api.SetTrouble(trouble)
	}
}

func killFunction(a *author) func(*env) { return kill(a.of(functions...)) }

func killSource(a *author) func(*env) {
	return kill(a.of("apiserversource-vitistack", "apiserversource-vitistack-resources"))
}

func killAPIServer(*author) func(*env)  { return kill("kube-apiserver") }
func killEtcd(*author) func(*env)       { return kill("etcd") }
func killGateway(*author) func(*env)    { return kill("gateway") }
func killSimulators(*author) func(*env) { return kill("sim") }

func kill(name string) func(*env) {
	return func(w *env) {
		w.tell("kill -9 %s", name)
		_ = w.e.KillProcess(name)
	}
}

// restartAll kills everything at once, the broker with the events that it has, and
// starts it again on what it has kept.
func restartAll(*author) func(*env) {
	return func(w *env) {
		w.tell("kill -9 everything, and start it again")
		w.lossy = true
		w.e.Kill()
		w.e.Run()
		w.n.SetBroker(w.e.Ingress())
	}
}

// misbehaviours are those of each simulator: slow, failing, done but answering with
// an error, and lying.
var misbehaviours = map[string][]string{
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
	// A real Kea, where there is one, does not misbehave on request.
	"kea": {`[]`, `[{"latency":"1s"}]`, `[{"error":"503","rate":0.3}]`, `[{"error":"no luck","after":true,"rate":0.3}]`},
}

// simulators are those of misbehaviours, in a fixed order.
var simulators = []string{"talos", "kubevirt", "proxmox", "nam", "netbox", "kea"}

func troubleBackend(a *author) func(*env) {
	name := a.of(simulators...)
	rule := a.of(misbehaviours[name]...)
	return func(w *env) {
		w.tell("%s misbehaves: %s", name, rule)
		w.e.SetFaults(name, rule)
	}
}

// turnClock makes a function's clock go wrong by up to three minutes.
func turnClock(a *author) func(*env) {
	if !a.long {
		return nil
	}
	function, off := a.of(functions...), time.Duration(a.random.IntN(360)-180)*time.Second
	return func(w *env) {
		w.tell("the clock of %s is off by %s", function, off)
		w.setClock(function, off)
	}
}

// setClock is heeded at once by the function, if it was built to have a clock of
// its own.
func (w *env) setClock(function string, off time.Duration) {
	w.t.Helper()
	path := filepath.Join(w.clocks, function)
	if err := os.WriteFile(path+".new", []byte(fmt.Sprint(off)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Fatal(err)
	}
}
