package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/share/policy"
)

// settingsOf runs `weir agent` up to the point where it would start.
func settingsOf(t *testing.T, file string, args ...string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var (
		socket   string
		f        agentFlags
		settings config.Config
	)
	root := &cobra.Command{Use: "weir", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVar(&socket, "socket", config.DefaultSocket, "")
	cmd := &cobra.Command{Use: "agent", RunE: func(cmd *cobra.Command, _ []string) (err error) {
		settings, err = f.settings(cmd, &socket)
		return err
	}}
	f.register(cmd.Flags())
	root.AddCommand(cmd)
	root.SetArgs(append([]string{"agent", "--config", path}, args...))
	err := root.Execute()
	return settings, err
}

func TestSettings(t *testing.T) {
	const file = `
uplink: eth0
rate: 100mbit
replace: true
socket: /run/other.sock
state_dir: /srv/weir
docker: {enabled: true, socket: /run/docker1.sock}
podman: {enabled: false}
host: {weight: 300}
`
	fromFile := config.Default()
	fromFile.Uplinks = []config.Uplink{{Interface: "eth0", RateBPS: 100e6, Replace: true}}
	fromFile.Socket, fromFile.StateDir = "/run/other.sock", "/srv/weir"
	fromFile.Docker.Socket = "/run/docker1.sock"
	fromFile.Podman.Enabled = config.Off
	fromFile.Host.Weight, fromFile.HostIn.Weight = 300, 300
	edit := func(c config.Config, change func(*config.Config)) config.Config {
		c.Uplinks = append([]config.Uplink(nil), c.Uplinks...)
		change(&c)
		return c
	}
	fromFlags := config.Default()
	fromFlags.Uplinks = []config.Uplink{{Interface: "wan0"}}
	for _, tc := range []struct {
		name, file string
		args       []string
		want       config.Config
	}{
		{"the file alone", file, nil, fromFile},
		{"flags alone", "", []string{"--uplink", "wan0"}, fromFlags},
		{
			"flags win", file, []string{"--uplink", "wan0", "--rate", "1gbit", "--socket", "/s", "--state-dir", "/d"},
			edit(fromFile, func(c *config.Config) {
				c.Uplinks[0].Interface, c.Uplinks[0].RateBPS = "wan0", 1e9
				c.Socket, c.StateDir = "/s", "/d"
			}),
		},
		{
			"a flag that says the default wins, too", file, []string{"--socket", config.DefaultSocket, "--state-dir", config.DefaultStateDir, "--replace=false"},
			edit(fromFile, func(c *config.Config) {
				c.Socket, c.StateDir = config.DefaultSocket, config.DefaultStateDir
				c.Uplinks[0].Replace = false
			}),
		},
		{"a dashboard", "", []string{"--uplink", "wan0", "--dashboard", "localhost:7480"}, edit(fromFlags, func(c *config.Config) { c.Dashboard = "127.0.0.1:7480" })},
		{"a listener", "uplink: wan0\nlisten: {certificate: /c, key: /k}\n", []string{"--listen", "192.0.2.1:7481"}, edit(fromFlags, func(c *config.Config) {
			c.Listen = config.Listen{Address: "192.0.2.1:7481", CertificatePath: "/c", KeyPath: "/k"}
		})},
		{"no listener", "uplink: wan0\nlisten: {address: 192.0.2.1:7481, certificate: /c, key: /k}\n", []string{"--listen", "none"}, edit(fromFlags, func(c *config.Config) {
			c.Listen = config.Listen{CertificatePath: "/c", KeyPath: "/k"}
		})},
		{"no dashboard", "uplink: wan0\ndashboard: 127.0.0.1:7480\n", []string{"--dashboard", "none"}, fromFlags},
		{"replace", "", []string{"--uplink", "wan0", "--replace"}, edit(fromFlags, func(c *config.Config) { c.Uplinks[0].Replace = true })},
		{
			"engines", file, []string{"--docker", "none", "--podman", "/run/p.sock"},
			edit(fromFile, func(c *config.Config) {
				c.Docker.Enabled = config.Off
				c.Podman = config.Engine{Enabled: config.On, Socket: "/run/p.sock"}
			}),
		},
		{
			"the rate in the file, the uplink on the command line", "rate: 30mbit\n", []string{"--uplink", "wan0"},
			edit(fromFlags, func(c *config.Config) { c.Uplinks[0].RateBPS = 30e6 }),
		},
		{"a rate alone", "", []string{"--rate", "30mbit"}, edit(fromFlags, func(c *config.Config) { c.Uplinks[0] = config.Uplink{Interface: "auto", RateBPS: 30e6} })},
		{"a rate alone in the file", "rate: 30mbit\n", nil, edit(fromFlags, func(c *config.Config) { c.Uplinks[0] = config.Uplink{Interface: "auto", RateBPS: 30e6} })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := settingsOf(t, tc.file, tc.args...)
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v (%v)\nwant %+v", got, err, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		name, file string
		args       []string
		says       string
	}{
		{"no uplink", "", nil, "which uplink?"},
		{"an empty uplink", "", []string{"--uplink", "", "--rate", "30mbit"}, "which uplink?"},
		{"the default route's beside another", "uplinks: [{interface: eth0}, {interface: auto}]\n", nil, "auto is an uplink beside others"},
		{"a rate without its unit", file, []string{"--rate", "95"}, "--rate 95 is 95 bit/s, not even a frame a second; did you mean 95mbit?"},
		{"a wrong rate", file, []string{"--rate", "1MB"}, "--rate 1MB has the unit \"MB\": bytes are not accepted"},
		{"a dashboard for others", file, []string{"--dashboard", "0.0.0.0:7480"}, `--dashboard: "0.0.0.0:7480" is not an address of this machine alone`},
		{"a listener without TLS", file, []string{"--listen", "192.0.2.1:7481"}, "--listen 192.0.2.1:7481 needs TLS: name a certificate and its key under listen in "},
		{"a listener at a name", file, []string{"--listen", "example.com:7481"}, `--listen: "example.com:7481" is not an address and a port`},
		{"a wrong file", "uplnk: eth0\n", []string{"--uplink", "wan0"}, ":1: uplnk: unknown key"},
	} {
		_, err := settingsOf(t, tc.file, tc.args...)
		if cmdline.ExitCode(err) != cmdline.Usage || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	// A file that is named has to be there; that it is not is told apart.
	if _, err := settingsOf(t, "", "--config", "/nowhere/weir.yaml", "--uplink", "wan0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if fromFlags.Host != policy.Default() {
		t.Error("the host class has another default than containers")
	}
}

// TestRatesFile: rates of the file --rates-file go before those of the configuration and of flags; what it does not say, and a
// file that is not there, changes nothing.
func TestRatesFile(t *testing.T) {
	const several = "uplinks: [{interface: eth0, rate: 1gbit}, {interface: eth1, rate: 30mbit, in_rate: 20mbit}]\n"
	one := config.Uplink{Interface: "eth0", RateBPS: 1e9}
	other := config.Uplink{Interface: "eth1", RateBPS: 30e6, In: true, InRateBPS: 20e6}
	gone, goneAuto := map[string]config.Rates{"gone": {RateBPS: 1e6}}, map[string]config.Rates{"gone": {RateBPS: 1e6, In: true}}
	withRates := func(u config.Uplink, rates map[string]config.Rates) config.Uplink { u.Rates = rates; return u }
	for _, tc := range []struct {
		name, file, rates string
		args              []string
		want              []config.Uplink
	}{
		{"of the first uplink", several, "{uplinks: [{interface: auto, rate: 50mbit}]}", nil, []config.Uplink{{Interface: "eth0", RateBPS: 50e6}, other}},
		{"of a named uplink", several, "{uplinks: [{interface: eth1, in_rate: auto}, {interface: gone, rate: 1mbit}]}", nil, []config.Uplink{withRates(one, gone), withRates(config.Uplink{Interface: "eth1", RateBPS: 30e6, In: true}, gone)}},
		{"of a device that auto stands for", "rate: 20mbit", "{uplinks: [{interface: gone, rate: 1mbit, in_rate: auto}]}", nil, []config.Uplink{withRates(config.Uplink{Interface: "auto", RateBPS: 20e6, In: true}, goneAuto)}},
		{"of no named uplink", several, "{rate: 50mbit}", nil, []config.Uplink{{Interface: "eth0", RateBPS: 50e6}, other}},
		{"of the only uplink", "", "{uplinks: [{interface: auto, rate: 50mbit, in_rate: 9mbit}]}", []string{"--uplink", "wan0", "--rate", "1gbit"}, []config.Uplink{{Interface: "wan0", RateBPS: 50e6, In: true, InRateBPS: 9e6}}},
		{"none", several, "", nil, []config.Uplink{one, other}},
		{"no file", several, "-", nil, []config.Uplink{one, other}},
	} {
		path := filepath.Join(t.TempDir(), "rates.yaml")
		if tc.rates != "-" {
			if err := os.WriteFile(path, []byte(tc.rates), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := settingsOf(t, tc.file, append(tc.args, "--rates-file", path)...)
		if err != nil || !reflect.DeepEqual(got.Uplinks, tc.want) {
			t.Errorf("%s: got %+v (%v), want %+v", tc.name, got.Uplinks, err, tc.want)
		}
	}
	for text, says := range map[string]string{
		"{uplinks: [{interface: auto, rate: fast}]}":                   "rates.yaml:1: uplinks[0].rate",
		"{rate: 50mbit, reserve: 10%}":                                 "rates.yaml says more than rates: write rate and in_rate",
		"{uplinks: [{interface: eth0, rate: 50mbit, precision: low}]}": "rates.yaml says more than rates",
	} {
		path := filepath.Join(t.TempDir(), "rates.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := settingsOf(t, several, "--rates-file", path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
