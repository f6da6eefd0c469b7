package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/vitistack/stack/events/setting"
)

// Key is one setting.
type Key struct {
	// Name is the key in the file and, after --, the flag.
	Name string
	// Env are the environment variables that set it, the strongest first.
	Env []string
	// Type says how a value is written: int, bool, duration, string, list or json.
	Type string
	// Default is the value of a key that is not set.
	Default string
	// Help is one line for people.
	Help string

	set func(value string) error
}

// variable is the environment variable that every key has by rule.
func variable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

func key(kind, name, env, byDefault, help string, set func(string) error) Key {
	k := Key{Name: name, Type: kind, Default: byDefault, Help: help, set: set}
	if env != "" {
		k.Env = append(k.Env, env)
	}
	if derived := variable(name); derived != env {
		k.Env = append(k.Env, derived)
	}
	return k
}

func text(to *string, name, env, byDefault, help string, allowed ...string) Key {
	return key("string", name, env, byDefault, help, func(value string) error {
		if len(allowed) > 0 && !slices.Contains(allowed, value) {
			return fmt.Errorf("write one of %s", strings.Join(allowed, ", "))
		}
		*to = value
		return nil
	})
}

// address is an http or https URL, or nothing.
func address(to *string, name, env, help string) Key {
	return key("string", name, env, "", help, func(value string) error {
		if value != "" {
			u, err := url.Parse(value)
			if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
				return fmt.Errorf("write an http or https URL, for example http://host:8080/path")
			}
		}
		*to = value
		return nil
	})
}

// hostPort is an address to listen on, or nothing.
func hostPort(to *string, name, env, help string) Key {
	return key("string", name, env, "", help, func(value string) error {
		if value != "" {
			host, port, err := net.SplitHostPort(value)
			_, bad := strconv.ParseUint(port, 10, 16)
			_, unknown := netip.ParseAddr(host)
			if err != nil || bad != nil || host != "" && unknown != nil {
				return fmt.Errorf("write an IP address and a port, or only the port, for example :9993")
			}
		}
		*to = value
		return nil
	})
}

// bounds are the least and the greatest number that a key may have.
type bounds struct{ least, most int }

func integer(to *int, name, env string, byDefault int, in bounds, help string) Key {
	return key("int", name, env, strconv.Itoa(byDefault), help, func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < in.least || n > in.most {
			return fmt.Errorf("write a whole number from %d to %d", in.least, in.most)
		}
		*to = n
		return nil
	})
}

func boolean(to *bool, name, env string, byDefault bool, help string) Key {
	return key("bool", name, env, strconv.FormatBool(byDefault), help, func(value string) error {
		on, err := setting.Bool(value)
		if err != nil {
			return errors.New("write true or false")
		}
		*to = on
		return nil
	})
}

func duration(to *time.Duration, name, env, byDefault string, least time.Duration, help string) Key {
	return key("duration", name, env, byDefault, help, func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < least {
			return fmt.Errorf("write a duration of at least %s, for example 30s", least)
		}
		*to = d
		return nil
	})
}

// schedule is a schedule of Knative's PingSource, in UTC, or nothing.
func schedule(to *cron.Schedule, name, env, byDefault, help string) Key {
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	return key("string", name, env, byDefault, help, func(value string) error {
		*to = nil
		if value == "" {
			return nil
		}
		read, err := parser.Parse(value)
		if err != nil || read.Next(time.Now()).IsZero() {
			return fmt.Errorf("write five fields such as */10 * * * *, six with seconds, or @every 10m")
		}
		*to = read
		return nil
	})
}

// list is written with commas, or as a list in the file.
func list(to *[]string, name, byDefault, help string) Key {
	return key("list", name, "", byDefault, help, func(value string) error {
		items := []string{}
		if strings.HasPrefix(strings.TrimSpace(value), "[") {
			if err := json.Unmarshal([]byte(value), &items); err != nil {
				return fmt.Errorf("write a list of strings")
			}
		} else {
			for item := range strings.SplitSeq(value, ",") {
				if item = strings.TrimSpace(item); item != "" {
					items = append(items, item)
				}
			}
		}
		*to = items
		return nil
	})
}

// webhooks is a list of objects, written as JSON outside a file.
func webhooks(to *[]Webhook, name, help string) Key {
	return key("json", name, "", "[]", help, func(value string) error {
		decoder := json.NewDecoder(strings.NewReader(value))
		decoder.DisallowUnknownFields()
		var read []Webhook
		if err := decoder.Decode(&read); err != nil {
			return fmt.Errorf("write a list of endpoints: %w", err)
		}
		for i := range read {
			if err := read[i].check(); err != nil {
				return fmt.Errorf("endpoint %d: %w", i, err)
			}
		}
		*to = read
		return nil
	})
}

var webhookName = regexp.MustCompile(`^[a-z0-9-]{0,63}$`)

// check fills in what is left out, and reads the secret.
func (w *Webhook) check() error {
	u, err := url.Parse(w.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("url has to be an http or https URL")
	}
	if !webhookName.MatchString(w.Name) {
		return errors.New("name has to be up to 63 lower-case letters, digits and hyphens, such as ticketing")
	}
	if w.Name == "broker" {
		return errors.New("name has to be another than broker, which is the Broker's")
	}
	if w.Timeout == 0 {
		w.Timeout = Duration(30 * time.Second)
	}
	if w.Timeout < 0 {
		return errors.New("timeout has to be a duration such as 30s")
	}
	if w.Retries == nil {
		three := 3
		w.Retries = &three
	}
	if *w.Retries < 0 {
		return errors.New("retries has to be 0 or more")
	}
	if w.SecretFile != "" {
		content, err := os.ReadFile(w.SecretFile)
		if err != nil {
			return fmt.Errorf("secretFile: %w", err)
		}
		if w.Secret = strings.TrimSpace(string(content)); w.Secret == "" {
			return fmt.Errorf("secretFile: %s is empty: write a secret into it, or leave secretFile out to send events without a signature", w.SecretFile)
		}
	}
	return nil
}
