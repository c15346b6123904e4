package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
)

// Pods come from weir-k8s over one request that lasts as long as it runs, so that either side
// notices at once when the other is gone: its body is one v1.PodsChange a line, and each is answered
// when it is in force, with one v1.PodState a line.

// errOtherPods returns why a second report of a runtime is refused: those of two programs would remove each other's
// containers.
func errOtherPods(runtime string) error {
	return fmt.Errorf("another weir-k8s reports the containers of %s; this one waits until it ends", runtime)
}

// errPodsLeft returns why a runtime's containers are not known any more.
func errPodsLeft(runtime string) error {
	part := "NRI"
	if runtime == v1.RuntimeContainerd {
		part = "containerd"
	}
	return fmt.Errorf("weir-k8s does not run, or is not connected to %s: what runs keeps its share, what starts gets none until it is back", part)
}

// pods returns the handler of reports of a runtime.
func (a *API) pods(runtime string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Otherwise an answer waits for the end of the body.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			a.refuse(w, r, err)
			return
		}
		if _, taken := a.reportsPods.LoadOrStore(runtime, true); taken {
			a.bound(w)
			a.answers.Refuse(w, r, http.StatusConflict, errOtherPods(runtime))
			return
		}
		defer a.reportsPods.Delete(runtime)
		if err := a.followPods(w, r, runtime); err != nil {
			a.bound(w)
			a.refuse(w, r, err)
		}
	}
}

// followPods learns what the body of a request says of a runtime until it ends. It returns an error before the
// first answer only.
func (a *API) followPods(w http.ResponseWriter, r *http.Request, runtime string) error {
	control := http.NewResponseController(w)
	decoder, encoder := json.NewDecoder(r.Body), json.NewEncoder(w)
	for first := true; ; first = false {
		var change v1.PodsChange
		err := control.SetReadDeadline(time.Now().Add(a.podsSilence))
		if err == nil {
			err = decoder.Decode(&change)
		}
		if first && err != nil {
			return &badRequestError{err}
		}
		var answer v1.PodState
		if err == nil {
			answer, err = a.learnPods(r.Context(), runtime, change)
		}
		if first && err != nil {
			return err
		}
		if first {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		if err == nil {
			err = errors.Join(encoder.Encode(answer), control.Flush())
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				a.log.Debug("the connection of weir-k8s ended", "error", err)
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTimeout)
			defer cancel()
			_, _ = a.agent.Learn(ctx, discovery.Event{Source: runtime, Disconnected: errPodsLeft(runtime)}) // it may be stopping
			return nil
		}
	}
}

func (a *API) learnPods(ctx context.Context, runtime string, change v1.PodsChange) (v1.PodState, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return a.agent.Learn(ctx, a.podsReader.Event(runtime, change))
}
