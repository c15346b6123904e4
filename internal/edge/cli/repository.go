package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	moby "github.com/moby/moby/client"
	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/share/policy"
)

// defaultDocker is the default path of Docker's socket.
const defaultDocker = "/var/run/docker.sock"

func newPushCommand(g *global) *cobra.Command {
	var docker, specification string
	cmd := &cobra.Command{
		Use:   "push FILE|IMAGE --spec FILE",
		Short: "Put a service into the repository",
		Long: `Put a service into the repository: its specification, and beside it its image as
compressed layers. The image is an archive as docker save makes it (- is standard
input), or one that this host's engine has. One of that name is replaced; what runs of it
goes on.`,
		Example: `  weir-edge push nginx:latest --spec shop.json
  docker save nginx | weir-edge push - --spec shop.json`,
		Args: cmdline.ExactArgs("FILE|IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if specification == "" {
				return cmdline.Usagef("--spec is missing: say what the service is")
			}
			if specification == "-" && args[0] == "-" {
				return cmdline.Usagef("standard input cannot be both the image and the specification: name a file for one of them")
			}
			document, err := readFile(cmd.InOrStdin(), specification)
			if err != nil {
				return err
			}
			archive, err := openImage(cmd.Context(), cmd.InOrStdin(), docker, args[0])
			if err != nil {
				return err
			}
			defer archive.Close()
			stored, err := server.NewClient(g.socket).Push(cmd.Context(), document, archive)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s pushed: %s, %s\n", stored.Service, megabytes(stored.SizeBytes), stored.Digest)
			return err
		},
	}
	cmd.Flags().StringVar(&specification, "spec", "", "file with the specification")
	cmd.Flags().StringVar(&docker, "docker", defaultDocker, "socket of the Docker engine that has the image")
	return cmd
}

// openImage opens an image archive: a file or, if no file has that name, the image from the engine.
func openImage(ctx context.Context, in io.Reader, docker, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(in), nil
	}
	file, err := openFile(name)
	if err == nil {
		return file, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	api, err := runtime.NewClient(docker)
	if err != nil {
		return nil, err
	}
	saved, err := api.ImageSave(ctx, []string{oneImage(ctx, api, name)})
	if err == nil {
		return &savedImage{saved, api}, nil
	}
	err = errors.Join(err, api.Close())
	if cerrdefs.IsNotFound(err) {
		return nil, fmt.Errorf("push %s: there is no file and no image of that name: save, build or pull it first", name)
	}
	return nil, fmt.Errorf("push %s: there is no file of that name, and as an image: %w", name, engineError(docker, err))
}

// oneImage returns the name with the tag latest if it has none: without a tag, an engine saves all
// tags of the name.
func oneImage(ctx context.Context, api *moby.Client, name string) string {
	parsed, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name // it may be an ID
	}
	latest := reference.FamiliarString(reference.TagNameOnly(parsed))
	if _, err := api.ImageInspect(ctx, latest); err != nil {
		return name // there is one with another tag
	}
	return latest
}

// openFile opens a file; it returns not-exist for a folder, which may have the same name as the
// image built in it.
func openFile(name string) (*os.File, error) {
	if about, err := os.Stat(name); err != nil {
		return nil, err
	} else if about.IsDir() {
		return nil, fs.ErrNotExist
	}
	return os.Open(name)
}

// savedImage is the archive of an image as the engine streams it.
type savedImage struct {
	io.ReadCloser
	api *moby.Client
}

func (s *savedImage) Close() error { return errors.Join(s.ReadCloser.Close(), s.api.Close()) }

func megabytes(bytes uint64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

func newServicesCommand(g *global) *cobra.Command {
	return cmdline.PrintAnswer(&cobra.Command{
		Use:   "services",
		Short: "List the services in the repository",
		Args:  cmdline.ExactArgs(),
	}, func(ctx context.Context, _ []string) ([]edge.Stored, error) {
		return server.NewClient(g.socket).Stored(ctx)
	}, func(cmd *cobra.Command, list []edge.Stored) error {
		if len(list) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "The repository is empty: weir-edge push FILE|IMAGE --spec FILE")
		}
		return printStored(cmd.OutOrStdout(), list)
	})
}

func printStored(w io.Writer, list []edge.Stored) error {
	var rows [][]string
	for _, s := range list {
		var document struct {
			Par struct {
				ImageName string `json:"imageName"`
			} `json:"par"`
		}
		_ = json.Unmarshal(s.Specification, &document) // of a newer weir-edge
		digest := s.Digest
		if len(digest) > 19 {
			digest = digest[7:19]
		}
		rows = append(rows, []string{s.Service, cmp.Or(document.Par.ImageName, "-"), cmp.Or(s.Architecture, "-"), megabytes(s.SizeBytes), cmp.Or(digest, "-"), s.Reason})
	}
	return printTable(w, "SERVICE IMAGE ARCHITECTURE SIZE DIGEST REASON", rows)
}

// newRepositoryCommand returns the hidden command that the repository's container runs.
func newRepositoryCommand() *cobra.Command {
	var dir, listen, cert, key string
	cmd := &cobra.Command{
		Use:    "repository",
		Short:  "Give images to nodes",
		Hidden: true,
		Args:   cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return repo.Serve(cmd.Context(), dir, listen, cert, key, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the repository")
	cmd.Flags().StringVar(&listen, "listen", "", "address to listen at")
	cmd.Flags().StringVar(&cert, "cert", "", "certificate")
	cmd.Flags().StringVar(&key, "key", "", "its key")
	return cmd
}

// repositoryOptions are the flags that set how nodes fetch images from this weir-edge.
type repositoryOptions struct {
	address, cert, key string
	labels             map[string]string
	// at is the parsed address after check; invalid if the flag is not given.
	at netip.AddrPort
}

func (o *repositoryOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.address, "repository", "", "address and port at which nodes get images that were pushed, e.g. 127.0.0.1:7482; none without it")
	flags.StringVar(&o.cert, "repository-cert", "", "file with the repository's certificate, for nodes on other hosts")
	flags.StringVar(&o.key, "repository-key", "", "file with its key")
	flags.StringToStringVar(&o.labels, "repository-label", repo.DefaultLabels, "policy of what the repository sends, as labels of containers")
}

func (o *repositoryOptions) check() error {
	if (o.cert == "") != (o.key == "") {
		return cmdline.Usagef("--repository-cert and --repository-key belong together")
	}
	if _, problems := policy.Parse(o.labels); len(problems) > 0 {
		return cmdline.Usagef("--repository-label %s=%s: %s", problems[0].Name, problems[0].Value, problems[0].Message)
	}
	if o.address != "" {
		var err error
		if o.at, err = repo.ParseAddress(o.address); err != nil {
			return cmdline.Usagef("--repository: %w", err)
		}
	}
	return nil
}

// checkLoose refuses flags that would have no effect.
func (o *repositoryOptions) checkLoose(changed func(flag string) bool) error {
	if o.address == "" && (changed("repository-cert") || changed("repository-key") || changed("repository-label")) {
		return cmdline.Usagef("--repository is missing: it says where nodes get what --repository-cert, --repository-key and --repository-label are for")
	}
	return nil
}

// repositoryRetry is the time between two attempts to start the repository's container.
const repositoryRetry = 10 * time.Second

// start starts the repository's registry container if an address is given, and returns that
// address; otherwise it removes the container that an earlier weir-edge of this folder started. An
// error is only logged, and what failed is tried again until ctx ends: services need no repository.
func (o *repositoryOptions) start(ctx context.Context, docker, dir string, log *slog.Logger) (address string) {
	if !o.at.IsValid() {
		removed, err := repo.RemoveContainer(ctx, docker, dir)
		switch {
		case err != nil:
			log.Error("the repository still gives images to nodes", "error", err)
		case removed:
			log.Info("nodes get no images from the repository any more", "address", "none is configured")
		}
		return ""
	}
	said := ""
	attempt := func() error {
		program, err := os.Executable()
		if err == nil {
			err = repo.StartContainer(ctx, repo.ContainerOptions{
				Socket: docker, Program: program, Dir: dir, Address: o.at, Cert: o.cert, Key: o.key, Labels: o.labels, Version: cmdline.Version,
			})
		}
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			log.Error("nodes get no images from the repository; services are not affected", "error", err)
		}
		return err
	}
	if attempt() != nil {
		go func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(repositoryRetry):
					if attempt() == nil {
						log.Info("nodes get images from the repository", "address", o.at)
						return
					}
				}
			}
		}()
	}
	return o.at.String()
}
