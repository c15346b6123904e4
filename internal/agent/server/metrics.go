package server

import (
	"bufio"
	"net/http"

	"github.com/weir-project/weir/internal/agent/metrics"
	"github.com/weir-project/weir/internal/front/exposition"
)

// metricsBuffer is the size of the output buffer, in bytes.
const metricsBuffer = 32 << 10

func (a *API) metrics(w http.ResponseWriter, r *http.Request) {
	a.bound(w)
	seen, err := a.agent.Latest(r.Context())
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", exposition.ContentType)
	buffer := bufio.NewWriterSize(w, metricsBuffer)
	if err := metrics.Write(buffer, seen.Snapshot); err != nil {
		a.log.Debug("cannot answer a scrape", "error", err)
		return
	}
	if err := buffer.Flush(); err != nil {
		a.log.Debug("cannot answer a scrape", "error", err)
	}
}
