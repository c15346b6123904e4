package advise

import (
	"cmp"
	"fmt"
	"slices"
)

// Advice is checked against measurements of the very scenarios that it is given for:
// sizes and numbers of containers that it has to interpolate.

// Checked is the advice for one scenario, compared with its own measurement.
type Checked struct {
	Question Question `json:"question"`
	// Advised is the mode advised from other measurements, Best the modes that the scenario's own
	// measurement shows as equally good.
	Advised string   `json:"advised"`
	Best    []string `json:"best"`
	// Agrees: Advised is one of Best. Lost is the relative throughput lost against the fastest
	// mode; negative means none.
	Agrees bool    `json:"agrees"`
	Lost   float64 `json:"lost"`
}

// Check computes the advice for every scenario of exhaustive from m, and compares it with
// exhaustive's own results. Both must have the same links.
func Check(m, exhaustive Measurements) ([]Checked, error) {
	var list []Checked
	for _, q := range exhaustive.questions() {
		advice, err := Choose(m, q)
		if err != nil {
			return nil, err
		}
		link, _ := exhaustive.link(q)
		_, choices := exhaustive.options(q, link)
		if len(choices) == 0 {
			return nil, fmt.Errorf("the measurements to check with have no container that sends %s on a link of %d bit/s in the way that the others were measured, with or without the agent", q.Protocol, q.RateBPS)
		}
		_, best := equals(choices)
		one := Checked{Question: q, Advised: advice.Mode}
		for _, o := range best {
			one.Best = append(one.Best, o.Mode)
		}
		one.Agrees = slices.Contains(one.Best, advice.Mode)
		fastest := slices.MaxFunc(choices, func(x, y Option) int { return cmp.Compare(x.RateBPS, y.RateBPS) })
		if i := slices.IndexFunc(choices, func(o Option) bool { return o.Mode == advice.Mode }); i >= 0 {
			one.Lost = 1 - choices[i].RateBPS/fastest.RateBPS
		} else {
			return nil, fmt.Errorf("the measurements to check with have no mode %s", advice.Mode)
		}
		list = append(list, one)
	}
	return list, nil
}

// questions returns the measured scenarios in order.
func (m Measurements) questions() []Question {
	var list []Question
	for _, one := range m.Results {
		if one.Mode == Native {
			continue
		}
		q := Question{Containers: one.Containers, Protocol: one.Protocol, MessageBytes: one.MessageBytes, RateBPS: one.LinkBPS}
		if !slices.Contains(list, q) {
			list = append(list, q)
		}
	}
	return list
}
