// Command images builds an image of every program in the manifests: small, static, for several
// platforms, and reproducible. It needs no registry: it writes the images into a folder in the OCI
// layout, and with -push to a registry.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/ko/pkg/build"
	"github.com/google/ko/pkg/publish"
)

type options struct {
	root, out, push, version string
	platforms                []string
	// digests receives name@digest of each image after it is pushed.
	digests io.Writer
}

func main() {
	log.SetFlags(0)
	o := options{digests: os.Stdout}
	var platforms string
	flag.StringVar(&o.root, "root", ".", "`folder` of the repository")
	flag.StringVar(&o.out, "out", "dist/images", "`folder` that gets the images, and their SBOMs in a folder beside it")
	flag.StringVar(&o.push, "push", "", "`REPOSITORY:TAG` to push them to, as REPOSITORY/name:TAG")
	flag.StringVar(&o.version, "version", "dev", "`version` that the programs tell")
	flag.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms, with commas")
	flag.Parse()
	o.platforms = strings.Split(platforms, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	programs, err := programs(o.root)
	if err != nil {
		return err
	}
	base, err := newBase(o.platforms)
	if err != nil {
		return fmt.Errorf("make the base image: %w", err)
	}
	reference, err := name.ParseReference("vitistack.io/base:nonroot")
	if err != nil {
		return err
	}
	builder, err := build.NewGo(ctx, o.root,
		build.WithBaseImages(func(context.Context, string) (name.Reference, build.Result, error) { return reference, base, nil }),
		build.WithPlatforms(o.platforms...), build.WithTrimpath(true),
		build.WithDefaultFlags([]string{"-buildvcs=false"}),
		build.WithDefaultLdflags([]string{"-s", "-w", "-X", "main.version=" + o.version}),
		build.WithDefaultEnv([]string{"CGO_ENABLED=0"}),
		build.WithSPDX(o.version), build.WithSBOMDir(filepath.Join(filepath.Dir(o.out), "sbom")),
	)
	if err != nil {
		return err
	}
	target, err := newTarget(o)
	if err != nil {
		return err
	}
	for _, program := range programs {
		image, err := builder.Build(ctx, program)
		if err != nil {
			return fmt.Errorf("build %s: %w", program, err)
		}
		digest, err := target.put(ctx, program, image)
		if err != nil {
			return fmt.Errorf("write the image of %s: %w", program, err)
		}
		if _, err := fmt.Fprintf(o.digests, "%s@%s\n", short(program), digest); err != nil {
			return err
		}
	}
	return nil
}

var image = regexp.MustCompile(`image: (ko://\S+)`)

// programs returns the import paths of the images in the manifests.
func programs(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "knative", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, match := range image.FindAllSubmatch(text, -1) {
			all = append(all, string(match[1]))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no manifest in %s/knative names a ko:// image", root)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// target is the destination of images.
type target struct {
	layout   layout.Path
	registry publish.Interface
}

func newTarget(o options) (*target, error) {
	if err := os.RemoveAll(o.out); err != nil {
		return nil, err
	}
	path, err := layout.Write(o.out, empty.Index)
	if err != nil || o.push == "" {
		return &target{layout: path}, err
	}
	tag, err := name.NewTag(o.push, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("%w: write -push as registry/repository:tag", err)
	}
	registry, err := publish.NewDefault(tag.Context().Name(),
		publish.WithAuthFromKeychain(authn.DefaultKeychain), publish.WithTags([]string{tag.TagStr()}),
		publish.WithNamer(func(base, program string) string { return base + "/" + short(program) }))
	return &target{layout: path, registry: registry}, err
}

func short(program string) string { return path.Base(program) }

// put writes an image, and returns its digest.
func (t *target) put(ctx context.Context, program string, image build.Result) (v1.Hash, error) {
	names := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": short(program)})
	var err error
	switch image := image.(type) {
	case v1.ImageIndex: // of several platforms
		err = t.layout.AppendIndex(image, names)
	case v1.Image:
		err = t.layout.AppendImage(image, names)
	default:
		err = fmt.Errorf("%T is neither an image nor an index", image)
	}
	if err != nil {
		return v1.Hash{}, err
	}
	if t.registry != nil {
		if _, err := t.registry.Publish(ctx, image, program); err != nil {
			return v1.Hash{}, err
		}
	}
	return image.Digest()
}
