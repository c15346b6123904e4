package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/sirupsen/logrus"

	"github.com/weir-project/weir/internal/edge/spec"
)

// A Compose file becomes one specification for each service, here in the command: its paths and its
// variables are of the user who deploys. compose-go reads it (merging, variables, short forms); what
// of it weir-edge can do is compose_keys.go's, and what it becomes compose_service.go's.

// composeService is a service of a Compose file, as it is deployed.
type composeService struct {
	// Name is weir-edge's, Where the place of the service in the file.
	Name     string
	Where    place
	Document []byte
}

// composeFile is what a Compose file says.
type composeFile struct {
	Project  string
	Services []composeService // what others need first
	// Notes are the keys without effect.
	Notes []string
}

// The most files that a Compose file may be made of, and that of which weir-edge takes the content.
const maxComposeFiles = 32

// isCompose reports whether a path is that of a Compose file.
func isCompose(path string) bool {
	extension := filepath.Ext(path)
	return extension == ".yaml" || extension == ".yml"
}

// readCompose reads a Compose file for an engine of that kind. environment is where variables are
// looked up, before the file .env beside the Compose file.
func readCompose(ctx context.Context, path, engine string, environment []string) (*composeFile, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("read the Compose file: %w", err)
	}
	dir := filepath.Dir(path)
	variables, err := composeVariables(dir, environment)
	if err != nil {
		return nil, err
	}
	w := &keyWalk{swarm: engine == "swarm", lines: map[string]place{}, tree: newKeyTree(), isSet: func(name string) bool {
		_, set := variables[name]
		return set
	}}
	content, err := w.readAll(path, dir, variables)
	if err == nil {
		err = w.err()
	}
	if err != nil {
		return nil, err
	}
	project, err := loadCompose(ctx, path, dir, content, variables)
	if err != nil {
		return nil, w.locate(err)
	}
	c := &converter{w: w, project: project, swarm: w.swarm}
	services, err := c.services()
	if err != nil {
		return nil, err
	}
	return &composeFile{project.Name, services, append(w.notes, c.notes...)}, nil
}

// composeVariables returns the variables that a Compose file may use.
func composeVariables(dir string, environment []string) (map[string]string, error) {
	variables := map[string]string{}
	for _, text := range environment {
		name, value, _ := strings.Cut(text, "=")
		variables[name] = value
	}
	path := filepath.Join(dir, ".env")
	content, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return variables, nil
	} else if err != nil {
		return nil, err
	}
	kept, err := dotenv.ParseWithLookup(bytes.NewReader(content), lookup(variables))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	maps.Copy(kept, variables)
	return kept, nil
}

func lookup(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := variables[name]
		return value, set
	}
}

// readBounded reads a regular file of at most [spec.MaxBytes].
func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read %s: it is no file", path)
	case info.Size() > spec.MaxBytes:
		return nil, fmt.Errorf("read %s: it has more than %d bytes", path, spec.MaxBytes)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, spec.MaxBytes))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return content, nil
}

// readAll walks over the file and all that it includes and extends, which has to be in its folder. It
// returns the content of the file.
func (w *keyWalk) readAll(path, dir string, variables map[string]string) (main []byte, err error) {
	seen, queue := map[string]bool{path: true}, []string{path}
	for len(queue) > 0 {
		file := queue[0]
		queue = queue[1:]
		content, err := readBounded(file)
		if err != nil {
			return nil, err
		}
		if main == nil {
			main = content
		}
		if err := w.read(shortened(dir, file), content); err != nil {
			return nil, err
		}
		for _, other := range w.others {
			next, err := template.Substitute(other.path, template.Mapping(lookup(variables)))
			if err == nil {
				next, err = inside(dir, filepath.Dir(file), next)
			}
			if err != nil {
				w.fail(other.at, "%w", err)
				continue
			}
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
		if len(seen) > maxComposeFiles {
			return nil, fmt.Errorf("read %s: it is made of more than %d files", path, maxComposeFiles)
		}
	}
	w.file = shortened(dir, path)
	return main, nil
}

// shortened returns a path as messages have it.
func shortened(dir, path string) string {
	if relative, err := filepath.Rel(dir, path); err == nil {
		return relative
	}
	return path
}

// loadCompose has compose-go read a file.
func loadCompose(ctx context.Context, path, dir string, content []byte, variables map[string]string) (*types.Project, error) {
	// What it warns of was told with its line, or is refused.
	logrus.SetOutput(io.Discard)
	details := types.ConfigDetails{
		WorkingDir: dir, Environment: variables, ConfigFiles: []types.ConfigFile{{Filename: path, Content: content}},
	}
	project, err := loader.LoadWithContext(ctx, details, func(o *loader.Options) {
		name, named := variables["COMPOSE_PROJECT_NAME"]
		if !named || name == "" {
			name, named = loader.NormalizeProjectName(filepath.Base(dir)), false
		}
		o.SetProjectName(name, named)
		o.SkipResolveEnvironment = true
		if profiles := variables["COMPOSE_PROFILES"]; profiles != "" {
			o.Profiles = strings.Split(profiles, ",")
		}
	})
	if err != nil {
		return nil, err
	}
	for _, s := range project.Services {
		for _, file := range s.EnvFiles {
			if _, err := readBounded(file.Path); err != nil && (bool(file.Required) || !errors.Is(err, fs.ErrNotExist)) {
				return nil, fmt.Errorf("services.%s.env_file: %w", s.Name, err)
			}
		}
	}
	return project.WithServicesEnvironmentResolved(true)
}

// pathIn matches the path of a key in a message of compose-go.
var pathIn = regexp.MustCompile(`\b(?:services|networks|volumes|configs|secrets|include)(?:\.[\w-]+|\[\d+\])+`)

// serviceIn matches the name of a service there.
var serviceIn = regexp.MustCompile(`service "([\w.-]+)"`)

// locate adds the place that a message of compose-go is about.
func (w *keyWalk) locate(err error) error {
	at := w.at()
	if path := pathIn.FindString(err.Error()); path != "" {
		parts := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
		at = w.at(parts...)
	} else if found := serviceIn.FindStringSubmatch(err.Error()); found != nil {
		at = w.at("services", found[1])
	}
	return fmt.Errorf("%s: %w", at, err)
}

// document returns the specification of a service, and refuses what no specification says.
func (c *converter) document(s *types.ServiceConfig, parts map[string]any) ([]byte, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("write the specification of %s: %w", s.Name, err)
	}
	if len(text) > spec.MaxBytes {
		return nil, fmt.Errorf("%s: with its configs and secrets service %s has more than %d bytes: mount large files as volumes", c.w.at("services", s.Name), s.Name, spec.MaxBytes)
	}
	if _, err := spec.Parse(text); err != nil {
		return nil, c.translated(s, err)
	}
	return text, nil
}

// composePaths are keys of the specification, and what they are in a Compose file.
var composePaths = [][2]string{
	{"par.serviceName", ""}, {"par.imageName", "image"}, {"par.startUpTime", "healthcheck.start_period"},
	{"par.", "x-weir-edge."}, {"QoS.", "x-weir-edge."}, {"algorithm", "x-weir-edge.algorithm"}, {"limits.instances", "x-weir-edge.minInstances"},
	{"limits.", "deploy.resources.limits."}, {"labels", "labels"}, {"ports", "ports"},
}

// translated returns the problems of a specification with the keys and lines of the Compose file.
func (c *converter) translated(s *types.ServiceConfig, err error) error {
	var list []error
	for line := range strings.Lines(err.Error()) {
		path, says, _ := strings.Cut(strings.TrimSpace(line), ": ")
		key := ""
		for _, pair := range composePaths {
			rest, is := strings.CutPrefix(path, pair[0])
			if !is {
				continue
			}
			if key = pair[1]; strings.HasSuffix(key, ".") {
				key += rest
			} else if rest != "" {
				says = strings.TrimPrefix(rest, ".") + ": " + says
			}
			break
		}
		for _, pair := range composePaths[2:6] {
			says = strings.ReplaceAll(says, pair[0], pair[1])
		}
		at := c.w.at(slices.DeleteFunc(append([]string{"services", s.Name}, strings.Split(key, ".")...), func(p string) bool { return p == "" })...)
		list = append(list, fmt.Errorf("%s: %s: %s", at, strings.TrimSuffix("services."+s.Name+"."+key, "."), strings.TrimSpace(says)))
	}
	return errors.Join(list...)
}
