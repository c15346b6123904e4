package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// A rule is an algorithm that an operator writes in one line of CEL, the Common
// Expression Language. It is evaluated for every alternative, and says either whether
// it is acceptable (a bool; the ones that are compete by what users would wait) or how
// good it is (a number; zero and less is not acceptable):
//
//	option.transfer_seconds < 10.0 && option.cpu_percent < 50.0
//	option.local ? 0.0 : service.response_seconds - option.response_seconds
//
// All numbers are doubles, so constants are written 50.0.

// ruleVariables are the variables of rules, each with its value function.
var ruleVariables = map[string]struct {
	kind *cel.Type
	get  func(*Question, *Alternative) any
}{
	"option.node":               {cel.StringType, func(_ *Question, a *Alternative) any { return a.Node }},
	"option.move":               {cel.BoolType, func(_ *Question, a *Alternative) any { return a.Action == Move }},
	"option.local":              {cel.BoolType, func(_ *Question, a *Alternative) any { return a.Local }},
	"option.exhausted":          {cel.BoolType, func(_ *Question, a *Alternative) any { return a.Exhausted != "" }},
	"option.transfer_seconds":   {cel.DoubleType, func(_ *Question, a *Alternative) any { return a.TransferSeconds }},
	"option.start_up_seconds":   {cel.DoubleType, func(_ *Question, a *Alternative) any { return a.StartUpSeconds }},
	"option.response_seconds":   {cel.DoubleType, func(_ *Question, a *Alternative) any { return a.ResponseSeconds }},
	"option.round_trip_seconds": {cel.DoubleType, func(_ *Question, a *Alternative) any { return a.RoundTripSeconds }},
	"option.free_bps":           {cel.DoubleType, func(_ *Question, a *Alternative) any { return float64(a.FreeBPS) }},
	"option.headroom_bps":       {cel.DoubleType, func(_ *Question, a *Alternative) any { return float64(a.HeadroomBPS) }},
	"option.cpu_percent":        {cel.DoubleType, func(_ *Question, a *Alternative) any { return a.CPUPercent }},
	"option.uplink_percent":     {cel.DoubleType, func(_ *Question, a *Alternative) any { return a.UplinkPercent }},

	"service.name":             {cel.StringType, func(q *Question, _ *Alternative) any { return q.Service.Name }},
	"service.must":             {cel.BoolType, func(q *Question, _ *Alternative) any { return q.Must }},
	"service.instances":        {cel.DoubleType, func(q *Question, _ *Alternative) any { return float64(q.Facts.Instances) }},
	"service.users":            {cel.DoubleType, func(q *Question, _ *Alternative) any { return q.Facts.Users }},
	"service.capacity":         {cel.DoubleType, func(q *Question, _ *Alternative) any { return q.Facts.Capacity }},
	"service.response_seconds": {cel.DoubleType, func(q *Question, _ *Alternative) any { return q.BeforeSeconds }},
	"service.required_seconds": {cel.DoubleType, func(q *Question, _ *Alternative) any { return q.Facts.RequiredSeconds }},
	"service.wait_seconds":     {cel.DoubleType, func(q *Question, _ *Alternative) any { return q.Service.WaitSeconds() }},
	"service.cpu_percent":      {cel.DoubleType, func(q *Question, _ *Alternative) any { return q.Facts.CPUPercent }},
}

// rules caches compiled rules; the zero value is ready.
type rules struct {
	mu       sync.Mutex
	compiled map[string]Algorithm
}

// get returns the algorithm compiled from a rule's text.
func (r *rules) get(text string) (Algorithm, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if algorithm := r.compiled[text]; algorithm != nil {
		return algorithm, nil
	}
	algorithm, err := compileRule(text)
	if err != nil {
		return nil, err
	}
	if r.compiled == nil || len(r.compiled) >= mostRules {
		r.compiled = map[string]Algorithm{}
	}
	r.compiled[text] = algorithm
	return algorithm, nil
}

// CheckRule returns an error if a rule does not compile.
func CheckRule(text string) error {
	_, err := compileRule(text)
	return err
}

func compileRule(text string) (Algorithm, error) {
	options := []cel.EnvOption{cel.CrossTypeNumericComparisons(true)}
	for name, v := range ruleVariables {
		options = append(options, cel.Variable(name, v.kind))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("prepare the language of rules: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("the rule is not valid (it may speak of %s): %w",
			strings.Join(slices.Sorted(maps.Keys(ruleVariables)), ", "), issues.Err())
	}
	switch ast.OutputType() {
	case cel.BoolType, cel.DoubleType, cel.IntType:
	default:
		return nil, fmt.Errorf("the rule gives a %s; write one that gives true or false, or a number", ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(ruleCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, fmt.Errorf("the rule cannot be used: %w", err)
	}
	return func(q *Question, a *Alternative) {
		value, _, err := program.Eval(ruleInput{q, a})
		if err != nil {
			a.Refused = fmt.Sprintf("the rule fails: %v", err)
			return
		}
		applyRule(q, a, value)
	}, nil
}

// applyRule sets an alternative's score or refusal from a rule's result.
func applyRule(q *Question, a *Alternative, value ref.Val) {
	const no = "the rule does not accept it"
	switch v := value.(type) {
	case types.Bool:
		spread(q, a)
		if !v {
			a.Refused = no
		}
	case types.Double:
		if a.Score = finite(float64(v)); a.Score == 0 {
			a.Refused = no
		}
	case types.Int:
		if a.Score = finite(float64(v)); a.Score == 0 {
			a.Refused = no
		}
	}
}

// ruleInput resolves the variables of a rule.
type ruleInput struct {
	q *Question
	a *Alternative
}

// ResolveName is of [cel.Activation].
func (in ruleInput) ResolveName(name string) (any, bool) {
	v, known := ruleVariables[name]
	if !known {
		return nil, false
	}
	return v.get(in.q, in.a), true
}

// Parent is of [cel.Activation].
func (in ruleInput) Parent() cel.Activation { return nil }
