package cmdline

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"
)

// Output is the flag -o of commands that list.
type Output string

// The output formats of most commands.
const (
	Table Output = "table"
	JSON  Output = "json"
	Wide  Output = "wide" // a table with more columns, if there are more
)

// outputFlag is the -o flag of a command that supports the known formats.
type outputFlag struct {
	output *Output
	known  []string
}

func (f outputFlag) String() string { return string(*f.output) }

// Set implements pflag.Value.
func (f outputFlag) Set(s string) error {
	if !slices.Contains(f.known, s) {
		return fmt.Errorf("%q is not %s", s, strings.Join(f.known, " or "))
	}
	*f.output = Output(s)
	return nil
}

// Type implements pflag.Value.
func (f outputFlag) Type() string { return strings.Join(f.known, "|") }

// AddOutputFlag adds -o with the formats table, JSON and more.
func AddOutputFlag(cmd *cobra.Command, more ...Output) *Output {
	o := Table
	f := outputFlag{&o, []string{string(Table), string(JSON)}}
	for _, m := range more {
		f.known = append(f.known, string(m))
	}
	cmd.Flags().VarP(f, "output", "o", "how to print: "+strings.Join(f.known, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.known, cobra.ShellCompDirectiveNoFileComp))
	return &o
}

// PrintAnswer has a command print what ask returns: with -o json as JSON, else by print.
func PrintAnswer[T any](cmd *cobra.Command, ask func(context.Context, []string) (T, error), print func(*cobra.Command, T) error) *cobra.Command {
	format := AddOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		value, err := ask(cmd.Context(), args)
		if err != nil {
			return err
		}
		if *format == JSON {
			return PrintJSON(cmd.OutOrStdout(), value)
		}
		return print(cmd, value)
	}
	return cmd
}

// Counted returns "1 node", "2 nodes".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// PrintJSON prints a value as JSON, and escapes the characters that Printable escapes. JSON's encoder leaves some of
// these characters as they are, such as those of the C1 set.
func PrintJSON(w io.Writer, v any) error {
	var text, safe strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	for _, r := range text.String() {
		if r == '\n' || unicode.IsPrint(r) {
			safe.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&safe, `\u%04x`, unit)
		}
	}
	if _, err := io.WriteString(w, safe.String()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
