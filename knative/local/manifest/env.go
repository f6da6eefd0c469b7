package manifest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// ErrAbsent means that a ConfigMap, Secret or key does not exist.
var ErrAbsent = errors.New("not there")

// Store reads the objects that environment variables refer to. Both methods return ErrAbsent for an
// object that does not exist.
type Store interface {
	ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error)
	Secret(ctx context.Context, namespace, name string) (map[string]string, error)
}

// Environment resolves the environment of the program's container as a kubelet does: envFrom first, then env in its order. Later values take precedence,
// and $(NAME) is replaced by earlier values. A reference that is not optional must exist. It also resolves the container's args.
func (p Program) Environment(ctx context.Context, store Store) (env map[string]string, args []string, err error) {
	env = map[string]string{}
	for _, source := range p.Container.EnvFrom {
		if err := p.addAll(ctx, store, source, env); err != nil {
			return nil, nil, err
		}
	}
	for _, variable := range p.Container.Env {
		value, ok, err := p.value(ctx, store, variable, env)
		if err != nil {
			return nil, nil, fmt.Errorf("resolve environment variable %s: %w", variable.Name, err)
		}
		if ok {
			env[variable.Name] = value
		}
	}
	for _, arg := range p.Container.Args {
		args = append(args, expansion.Expand(arg, expansion.MappingFuncFor(env)))
	}
	return env, args, nil
}

func (p Program) addAll(ctx context.Context, store Store, source corev1.EnvFromSource, env map[string]string) error {
	var values map[string]string
	var err error
	var optional *bool
	var what string
	switch {
	case source.ConfigMapRef != nil:
		what, optional = "ConfigMap "+p.Namespace+"/"+source.ConfigMapRef.Name, source.ConfigMapRef.Optional
		values, err = store.ConfigMap(ctx, p.Namespace, source.ConfigMapRef.Name)
	case source.SecretRef != nil:
		what, optional = "Secret "+p.Namespace+"/"+source.SecretRef.Name, source.SecretRef.Optional
		values, err = store.Secret(ctx, p.Namespace, source.SecretRef.Name)
	default:
		return errors.New("resolve envFrom: it must refer to a ConfigMap or a Secret")
	}
	if skip, err := absent(what, "", optional, err); skip || err != nil {
		return err
	}
	for name, value := range values {
		env[source.Prefix+name] = value
	}
	return nil
}

// value reports whether the variable is set.
func (p Program) value(ctx context.Context, store Store, variable corev1.EnvVar, env map[string]string) (string, bool, error) {
	from := variable.ValueFrom
	switch {
	case from == nil:
		return expansion.Expand(variable.Value, expansion.MappingFuncFor(env)), true, nil
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		values, err := store.ConfigMap(ctx, p.Namespace, ref.Name)
		return pick(values, err, "ConfigMap "+p.Namespace+"/"+ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		values, err := store.Secret(ctx, p.Namespace, ref.Name)
		return pick(values, err, "Secret "+p.Namespace+"/"+ref.Name, ref.Key, ref.Optional)
	case from.FieldRef != nil:
		fields := map[string]string{
			"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.serviceAccountName": p.ServiceAccount,
			"status.podIP": "127.0.0.1", "status.hostIP": "127.0.0.1", "spec.nodeName": "local",
		}
		value, ok := fields[from.FieldRef.FieldPath]
		if !ok {
			return "", false, fmt.Errorf("fieldPath %q: the local engine knows %s", from.FieldRef.FieldPath, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		return value, true, nil
	default:
		return "", false, errors.New("valueFrom: the local engine knows configMapKeyRef, secretKeyRef and fieldRef")
	}
}

func pick(values map[string]string, err error, what, key string, optional *bool) (string, bool, error) {
	value, ok := values[key]
	if err == nil && !ok {
		err = ErrAbsent
	}
	if skip, err := absent(what, key, optional, err); skip || err != nil {
		return "", false, err
	}
	return value, true, nil
}

// absent reports whether a missing reference may be ignored, and otherwise completes the error.
func absent(what, key string, optional *bool, err error) (bool, error) {
	switch {
	case err == nil:
		return false, nil
	case !errors.Is(err, ErrAbsent):
		return false, fmt.Errorf("read %s: %w", what, err)
	case optional != nil && *optional:
		return true, nil
	case key != "":
		return false, fmt.Errorf("key %q of %s is %w: create it, or mark the reference optional", key, what, err)
	default:
		return false, fmt.Errorf("%s is %w: create it, or mark the reference optional", what, err)
	}
}

// Directories returns, for each mount of an initially empty volume, its path and the volume's name. Volumes that are projected from Secrets are
// included: see Projected. Other volumes with content are an error, because a process has no mounts.
func (p Program) Directories() (map[string]string, error) {
	empty := map[string]bool{}
	for _, volume := range p.Volumes {
		empty[volume.Name] = volume.EmptyDir != nil || volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil || volume.Projected != nil
	}
	directories := map[string]string{}
	for _, mount := range p.Container.VolumeMounts {
		if !empty[mount.Name] {
			return nil, fmt.Errorf("volume %s of %s/%s: the local engine mounts only emptyDir, claims and projected Secrets; use environment variables", mount.Name, p.Namespace, p.Name)
		}
		directories[path.Clean(mount.MountPath)] = mount.Name
	}
	return directories, nil
}

// Projected returns, for each projected volume, the Secrets whose keys are its files. Other sources are an error.
func (p Program) Projected() (map[string][]corev1.SecretProjection, error) {
	secrets := map[string][]corev1.SecretProjection{}
	for _, volume := range p.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret == nil || len(source.Secret.Items) > 0 {
				return nil, fmt.Errorf("volume %s of %s/%s: the local engine projects only whole Secrets", volume.Name, p.Namespace, p.Name)
			}
			secrets[volume.Name] = append(secrets[volume.Name], *source.Secret)
		}
	}
	return secrets, nil
}

// Relocate replaces a path at or below from by one at or below to, wherever it occurs in the text.
func Relocate(text, from, to string) string {
	var out strings.Builder
	for {
		begin := strings.Index(text, from)
		if begin < 0 {
			return out.String() + text
		}
		end := begin + len(from)
		out.WriteString(text[:begin])
		if (begin == 0 || !inName(text[begin-1])) && (end == len(text) || !inName(text[end])) {
			out.WriteString(to)
		} else {
			out.WriteString(from)
		}
		text = text[end:]
	}
}

// inName reports whether a byte can be part of a path element.
func inName(c byte) bool {
	return c == '-' || c == '_' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
