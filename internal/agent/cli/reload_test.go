package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/test/must"
)

func TestReloadAsksTheAgent(t *testing.T) {
	a := busyHost()
	if code, stdout, stderr := run("reload", "--socket", a.serve(t)); code != 0 || stdout != "changed: eth0: rate 2gbit instead of 1gbit\n" || stderr != "" || !reflect.DeepEqual(a.called, []string{"reload"}) {
		t.Errorf("exit code %d, %q, %q, %v", code, stdout, stderr, a.called)
	}
	a.err = fmt.Errorf("%w: weir.yaml:3: rate: wrong", loop.ErrRefused)
	if code, _, stderr := run("reload", "--socket", a.serve(t)); code != 1 || stderr != "weir: refused: weir.yaml:3: rate: wrong\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestOnlyByRestart(t *testing.T) {
	before := config.Default()
	after := before
	after.Uplinks, after.ReserveBasisPoints, after.Host.Weight, after.Rules.TrustImageLabels = []config.Uplink{{Interface: "a"}}, 1, 7, true
	if err := onlyByRestart(before, after); err != nil {
		t.Error(err)
	}
	after.Dashboard = "127.0.0.1:1"
	after.Socket, after.Containers = "/x", []config.Container{{Name: "a"}}
	if err := onlyByRestart(before, after); err == nil || !strings.Contains(err.Error(), "changes socket, dashboard, containers: restart the agent") {
		t.Errorf("error %v", err)
	}
}

// Every signal is one reading, and what goes wrong with it is said.
func TestReloadOn(t *testing.T) {
	signals, ctx := make(chan os.Signal), t.Context()
	read := make(chan error)
	reader, writer := io.Pipe()
	go reloadOn(ctx, signals, func(context.Context) (v1.Reloaded, error) { return v1.Reloaded{}, <-read }, slog.New(slog.NewTextHandler(writer, nil)))
	signals <- syscall.SIGHUP
	read <- fmt.Errorf("%w: which the agent has said", loop.ErrRefused)
	signals <- syscall.SIGHUP
	read <- errors.New("agent is busy")
	line := make([]byte, 4096)
	if n, err := reader.Read(line); err != nil || !strings.Contains(string(line[:n]), "agent is busy") {
		t.Errorf("said %q, %v", line[:n], err)
	}
}

// TestAgentSettings: what may be written of an uplink arrives at the agent, each value.
func TestAgentSettings(t *testing.T) {
	written := config.Default()
	written.Uplinks = []config.Uplink{{Interface: "a", RateBPS: 1, Replace: true, IgnoreLinkSpeed: true, Precision: v1.PrecisionLow, In: true, InRateBPS: 2, InForce: true, Rates: map[string]config.Rates{"b": {RateBPS: 3, InRateBPS: 4, In: true}}}}
	settings, err := (&agentFlags{}).agentSettings(written)
	if err != nil {
		t.Fatal(err)
	}
	if u := settings.Uplinks[0]; u.RateBPS != 1 || u.In.RateBPS != 2 || u.Rates["b"] != (uplink.Rates{RateBPS: 3, InRateBPS: 4, In: true}) {
		t.Errorf("%+v", u)
	}
	for _, u := range []any{written.Uplinks[0], settings.Uplinks[0], settings.Uplinks[0].In} {
		value := reflect.ValueOf(u)
		for i := range value.NumField() {
			// An uplink's UplinkName is of IFBs alone.
			if name := value.Type().Field(i).Name; value.Field(i).IsZero() && name != "UplinkName" {
				t.Errorf("%T: %s is lost", u, name)
			}
		}
	}
}

// TestReloadMissesNoSetting: each value of a configuration that changes is a setting for the agent, or
// takes a restart.
func TestReloadMissesNoSetting(t *testing.T) {
	before := config.Default()
	settings, err := (&agentFlags{}).agentSettings(before)
	must.Succeed(t, err)
	values := 0
	var check func(path string, after *config.Config, value reflect.Value)
	check = func(path string, after *config.Config, value reflect.Value) {
		if value.Kind() == reflect.Struct {
			for i := range value.NumField() {
				check(path+"."+value.Type().Field(i).Name, after, value.Field(i))
			}
			return
		}
		was := reflect.ValueOf(value.Interface())
		if err := change(value); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		values++
		taken, err := (&agentFlags{}).agentSettings(*after)
		if err == nil && reflect.DeepEqual(taken, settings) && onlyByRestart(before, *after) == nil {
			t.Errorf("a change of %s has no effect", path)
		}
		value.Set(was)
	}
	after := before
	check("Config", &after, reflect.ValueOf(&after).Elem())
	if values < 30 || !reflect.DeepEqual(before, after) {
		t.Errorf("changed %d values, from %+v to %+v", values, before, after)
	}
}

// change gives a variable another value.
func change(v reflect.Value) error {
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanFloat():
		v.SetFloat(v.Float() + 0.25)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	default:
		return fmt.Errorf("no other value of %s", v.Type())
	}
	return nil
}
