package clientconfig_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/kubeconfig"
	"github.com/vitistack/stack/tools/kubectl-viti/clientconfig"
)

func kubeconfigOf(name, server, token string) string {
	return `apiVersion: v1
kind: Config
current-context: ` + name + `
clusters: [{name: ` + name + `, cluster: {server: "` + server + `"}}]
users: [{name: ` + name + `, user: {token: ` + token + `}}]
contexts: [{name: ` + name + `, context: {cluster: ` + name + `, user: ` + name + `}}]
`
}

func TestMergeKubeconfig(t *testing.T) {
	t.Parallel()
	added := kubeconfigOf("admin", "https://10.0.0.5:6443", "new")
	for name, tc := range map[string]struct {
		because, file string
		options       clientconfig.Options
		current       string
		contexts      int
		conflict      bool
	}{
		"New":       {"there is no file", "", clientconfig.Options{Name: "shop"}, "shop", 1, false},
		"Beside":    {"the current context stays", kubeconfigOf("work", "https://work", "w"), clientconfig.Options{Name: "shop"}, "work", 2, false},
		"Use":       {"it is wanted", kubeconfigOf("work", "https://work", "w"), clientconfig.Options{Name: "shop", Use: true}, "shop", 2, false},
		"Renewed":   {"the same server has new credentials", kubeconfigOf("shop", "https://10.0.0.5:6443", "old"), clientconfig.Options{Name: "shop"}, "shop", 1, false},
		"Elsewhere": {"the context is another cluster's", kubeconfigOf("shop", "https://other", "old"), clientconfig.Options{Name: "shop"}, "", 0, true},
		"Overwrite": {"it is wanted", kubeconfigOf("shop", "https://other", "old"), clientconfig.Options{Name: "shop", Overwrite: true}, "shop", 1, false},
		"User":      {"another context has a user of the name", strings.NewReplacer("users: [{name: w,", "users: [{name: shop,", "user: w}", "user: shop}").Replace(kubeconfigOf("w", "https://work", "w")), clientconfig.Options{Name: "shop"}, "", 0, true},
		"Left":      {"no context uses the user any more", strings.Replace(kubeconfigOf("shop", "https://10.0.0.5:6443", "old"), "contexts: [{name: shop, context: {cluster: shop, user: shop}}]", "contexts: []", 1), clientconfig.Options{Name: "shop"}, "shop", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			merged, err := clientconfig.MergeKubeconfig([]byte(tc.file), []byte(added), tc.options)
			var conflict clientconfig.ConflictError
			if errors.As(err, &conflict) != tc.conflict || err != nil && !tc.conflict {
				t.Fatalf("%s: got the error %v", tc.because, err)
			}
			if tc.conflict {
				return
			}
			config, err := clientcmd.Load(merged)
			if err != nil {
				t.Fatal(err)
			}
			if config.CurrentContext != tc.current || len(config.Contexts) != tc.contexts {
				t.Errorf("%s: the current context is %s of %d, want %s of %d", tc.because, config.CurrentContext, len(config.Contexts), tc.current, tc.contexts)
			}
			if c := config.Contexts["shop"]; config.Clusters[c.Cluster].Server != "https://10.0.0.5:6443" || config.AuthInfos[c.AuthInfo].Token != "new" {
				t.Errorf("%s: the context shop leads elsewhere", tc.because)
			}
			if again, err := clientconfig.MergeKubeconfig(merged, []byte(added), tc.options); err != nil || string(again) != string(merged) {
				t.Errorf("%s: a second merge changes the file: %v", tc.because, err)
			}
		})
	}
}

// TestMaliciousKubeconfig merges kubeconfigs that a user with the right to edit the Secret of a cluster could have written.
func TestMaliciousKubeconfig(t *testing.T) {
	t.Parallel()
	good := kubeconfigOf("admin", "https://10.0.0.5:6443", "new")
	for name, replace := range map[string][2]string{
		"Program":     {"token: new", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}"},
		"Provider":    {"token: new", "auth-provider: {name: oidc}"},
		"TokenFile":   {"token: new", "tokenFile: /etc/shadow"},
		"Certificate": {"token: new", "client-certificate: /etc/shadow"},
		"Key":         {"token: new", "client-key: /etc/shadow"},
		"Authority":   {`cluster: {server:`, `cluster: {certificate-authority: /etc/shadow, server:`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := strings.Replace(good, replace[0], replace[1], 1)
			merged, err := clientconfig.MergeKubeconfig(nil, []byte(bad), clientconfig.Options{Name: "shop"})
			if !errors.Is(err, kubeconfig.ErrReachesHere) || len(merged) > 0 {
				t.Errorf("got %q and the error %v", merged, err)
			}
		})
	}
	if err := clientconfig.CheckKubeconfig([]byte("{")); err == nil || strings.Contains(err.Error(), "{") {
		t.Errorf("what is not a kubeconfig leads to the error %v", err)
	}
}

func TestMergeTalosconfig(t *testing.T) {
	t.Parallel()
	const added = "context: shop\ncontexts: {shop: {endpoints: [10.0.0.3, 10.0.0.4], ca: YQ==, crt: new, key: new}}\n"
	for name, tc := range map[string]struct {
		because, file string
		overwrite     bool
		want          []string
		conflict      bool
	}{
		"New":       {"there is no file", "", false, []string{"context: mine", "crt: new"}, false},
		"Beside":    {"other contexts and fields stay", "context: work\nfuture: field\ncontexts: {work: {endpoints: [10.9.9.9], crt: w}}\n", false, []string{"context: work", "crt: w", "crt: new", "future: field"}, false},
		"Renewed":   {"it has an endpoint of the cluster", "context: mine\ncontexts: {mine: {endpoints: [10.0.0.4], crt: old}}\n", false, []string{"crt: new"}, false},
		"Elsewhere": {"it has none", "context: mine\ncontexts: {mine: {endpoints: [10.9.9.9], crt: old}}\n", false, nil, true},
		"Overwrite": {"it is wanted", "context: mine\ncontexts: {mine: {endpoints: [10.9.9.9], crt: old}}\n", true, []string{"crt: new"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			merged, err := clientconfig.MergeTalosconfig([]byte(tc.file), []byte(added), clientconfig.Options{Name: "mine", Overwrite: tc.overwrite})
			var conflict clientconfig.ConflictError
			if errors.As(err, &conflict) != tc.conflict || err != nil && !tc.conflict {
				t.Fatalf("%s: got the error %v", tc.because, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(merged), want) {
					t.Errorf("%s: %q is missing in\n%s", tc.because, want, merged)
				}
			}
			if strings.Contains(string(merged), "crt: old") {
				t.Errorf("%s: the old certificate stays", tc.because)
			}
		})
	}
	if _, err := clientconfig.MergeTalosconfig([]byte("key: [c2VjcmV0"), []byte(added), clientconfig.Options{Name: "mine"}); err == nil || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("a file that is not YAML is an error that quotes none of it: %v", err)
	}
}

func TestMergeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "real", "config"), filepath.Join(dir, "link")
	added, options := []byte(kubeconfigOf("admin", "https://10.0.0.5:6443", "secret")), clientconfig.Options{Name: "shop"}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		because, path string
		changed       bool
	}{
		{"there is neither a file nor its folder", path, true},
		{"the content is the same", path, false},
		{"a link leads to the same file", link, false},
	} {
		changed, err := clientconfig.MergeFile(tc.path, clientconfig.MergeKubeconfig, added, options)
		if err != nil || changed != tc.changed {
			t.Errorf("%s: changed %t, %v", tc.because, changed, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may not read credentials: %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("a link stays a link: %v", err)
	}
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clientconfig.MergeFile(path, clientconfig.MergeKubeconfig, added, options); err == nil || !strings.Contains(err.Error(), path+".lock") {
		t.Errorf("another program holds the lock: %v", err)
	}
	_ = os.Remove(path + ".lock")
	if err := os.WriteFile(path, []byte(kubeconfigOf("shop", "https://other", "old")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clientconfig.MergeFile(path, clientconfig.MergeKubeconfig, added, options); err == nil {
		t.Error("a conflict is an error")
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("nothing stays beside the file: %v, %v", entries, err)
	}
	if kept, err := os.ReadFile(path); err != nil || !strings.Contains(string(kept), "https://other") {
		t.Errorf("a conflict leaves the file as it is: %v", err)
	}
}
