package proxmox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// task is a background task, identified by its UPID.
type task struct {
	UPID, Node, Kind, ID string
	User                 string
	PID                  int
	Start, End           time.Time
	// Exit is empty while it runs, then OK or the reason of its failure.
	Exit string
	Log  []string
	took time.Duration
	work func(*task) error
	// undo releases what was claimed for the task if a fault prevents its work.
	undo func()
	// machine is the machine that it has locked, or 0.
	machine int
	// warnings is the number of its warnings.
	warnings int
}

// workerKilled is the exit status of a task whose worker was killed, or whose host has lost power (pve-common, Tools.pm,
// upid_read_status). What the worker has begun stays.
const workerKilled = "unexpected status"

func (t *task) print(format string, args ...any) {
	t.Log = append(t.Log, fmt.Sprintf(format, args...))
}

// warn adds a warning to the log.
func (t *task) warn(format string, args ...any) {
	t.warnings++
	t.print("WARN: "+format, args...)
}

// fork starts a task and returns its UPID. A task of a machine waits for earlier tasks of the machine,
// because each holds the lock of the configuration.
func (s *Server) fork(c *call, kind, id string, machine int, took time.Duration, work func(*task) error) string {
	s.nextPID++
	now := time.Now()
	t := &task{
		Node: c.node.Name, Kind: kind, ID: id, User: c.user.String(), PID: s.nextPID, Start: now,
		took: took + s.options.Times.Task, work: work, machine: machine,
	}
	t.UPID = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", t.Node, t.PID, now.UnixMilli()&0xffffffff, now.Unix(), kind, id, t.User)
	s.tasks[t.UPID] = t
	if machine != 0 {
		s.busy[machine] = append(s.busy[machine], t)
		if len(s.busy[machine]) > 1 {
			return t.UPID
		}
	}
	s.begin(t)
	return t.UPID
}

// begin runs the work of a task once its duration has passed. Callers hold mu.
func (s *Server) begin(t *task) {
	fault := s.options.Plan.Next("task/" + t.Kind)
	var timer *time.Timer
	timer = time.AfterFunc(t.took+fault.Latency, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.timers, timer)
		if s.closed {
			return
		}
		err := error(nil)
		if text, ok := fault.Before(); ok {
			err = fmt.Errorf("%s", text)
			if t.undo != nil && text != workerKilled {
				t.undo()
			}
		} else {
			err = t.work(t)
		}
		if text, ok := fault.Lost(); ok && err == nil {
			err = fmt.Errorf("%s", text)
		}
		s.finish(t, err)
	})
	s.timers[timer] = true
}

// finish ends a task, and begins the next one of its machine.
func (s *Server) finish(t *task, err error) {
	t.End, t.Exit = time.Now(), "OK"
	if t.warnings > 0 && s.major() >= release9 {
		t.Exit = fmt.Sprintf("WARNINGS: %d", t.warnings)
	}
	if err != nil {
		t.Exit = strings.TrimSpace(strings.ReplaceAll(err.Error(), "\n", " "))
		t.print("TASK ERROR: %s", t.Exit)
	} else {
		t.print("TASK OK")
	}
	if t.machine != 0 {
		waiting := s.busy[t.machine][1:]
		s.busy[t.machine] = waiting
		if len(waiting) > 0 {
			s.begin(waiting[0])
		} else {
			delete(s.busy, t.machine)
		}
	}
	s.save()
}

func (s *Server) later(d time.Duration, work func()) {
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.timers, timer)
		if !s.closed {
			work()
		}
	})
	s.timers[timer] = true
}

// taskOf returns the task of a call.
func (c *call) taskOf() (*task, error) {
	upid := c.params["upid"]
	if parts := strings.Split(upid, ":"); len(parts) != 9 || parts[0] != "UPID" {
		return nil, badParameter("upid", "unable to parse worker upid '%s'", upid)
	}
	t, ok := c.server.tasks[upid]
	if !ok || t.Node != c.node.Name {
		return nil, badParameter("upid", "no such task")
	}
	owner, _, _ := strings.Cut(t.User, "!")
	if owner != c.user.user {
		if err := c.demand("/nodes/"+c.node.Name, "Sys.Audit"); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *task) describe() map[string]any {
	user, token, _ := strings.Cut(t.User, "!")
	d := map[string]any{
		"upid": t.UPID, "node": t.Node, "pid": t.PID, "pstart": t.Start.UnixMilli() & 0xffffffff, "starttime": t.Start.Unix(),
		"type": t.Kind, "id": t.ID, "user": user,
	}
	if token != "" {
		d["tokenid"] = token
	}
	return d
}

func taskStatus(c *call) (any, error) {
	t, err := c.taskOf()
	if err != nil {
		return nil, err
	}
	d := t.describe()
	d["status"] = "running"
	if t.Exit != "" {
		d["status"], d["exitstatus"] = "stopped", t.Exit
	}
	return d, nil
}

func taskLog(c *call) (any, error) {
	t, err := c.taskOf()
	if err != nil {
		return nil, err
	}
	start, _ := strconv.Atoi(c.params["start"])
	limit := 50
	if l, ok := c.params["limit"]; ok {
		limit, _ = strconv.Atoi(l)
	}
	lines := []any{}
	for i, text := range t.Log {
		if i >= start && (limit == 0 || len(lines) < limit) {
			lines = append(lines, map[string]any{"n": i + 1, "t": text})
		}
	}
	if len(t.Log) == 0 {
		lines = append(lines, map[string]any{"n": 1, "t": "no content"})
	}
	return lines, nil
}

func listTasks(c *call) (any, error) {
	source := c.params["source"]
	listed := []map[string]any{}
	for _, t := range c.server.tasks {
		running := t.Exit == ""
		owner, _, _ := strings.Cut(t.User, "!")
		visible := owner == c.user.user || c.may("/nodes/"+c.node.Name, "Sys.Audit")
		if t.Node != c.node.Name || !visible || (running && (source == "" || source == "archive")) || (!running && source == "active") {
			continue
		}
		if kind := c.params["typefilter"]; (kind != "" && kind != t.Kind) || (c.params["vmid"] != "" && c.params["vmid"] != t.ID) {
			continue
		}
		d := t.describe()
		if !running {
			d["endtime"], d["status"] = t.End.Unix(), t.Exit
		}
		listed = append(listed, d)
	}
	slices.SortFunc(listed, func(a, b map[string]any) int { return b["pid"].(int) - a["pid"].(int) })
	limit := 50
	if l, ok := c.params["limit"]; ok {
		limit, _ = strconv.Atoi(l)
	}
	return listed[:min(limit, len(listed))], nil
}
