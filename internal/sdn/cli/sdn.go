package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

func newSDNCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sdn",
		Short: "Control OpenFlow switches: queues by application",
		Long:  "Control OpenFlow switches, and read what they say (docs/sdn.md).",
		Args:  cmdline.ExactArgs("a command (run, ps, flows, topology, down, decode)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmdline.Usagef("%q is no command of %s: there are run, ps, flows, topology, down and decode", args[0], cmd.CommandPath())
		},
	}
	cmd.AddCommand(newSDNRunCommand(), newSDNPsCommand(), newSDNFlowsCommand(), newSDNTopologyCommand(), newSDNDownCommand(), newSDNDecodeCommand())
	return cmd
}

func newSDNDecodeCommand() *cobra.Command {
	var numbers bool
	cmd := &cobra.Command{
		Use:   "decode FILE",
		Short: "Print the OpenFlow 1.3 messages of a file as JSON",
		Long: `Print the OpenFlow 1.3 messages of a file, which follow one another as on a
connection, as JSON, one a line, with the names of the specification. - is
standard input.

What experimenters define (Nicira's actions and match fields among them), packets
and the data of errors are base64. The first message that is cut off, of another
version or wrong ends the command with exit code 1 and says which byte is wrong,
after the messages before it.`,
		Example: "weir sdn decode messages.bin\nweir sdn decode --numbers - <messages.bin",
		Args:    cmdline.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("read messages: %w", err)
				}
				defer file.Close()
				in = file
			}
			count, err := decodeOpenFlow(in, cmd.OutOrStdout(), numbers)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if count == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is empty: there is no message in it\n", cmdline.Printable(args[0]))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&numbers, "numbers", false, "print values as numbers, not by the specification's names")
	return cmd
}

// decodeOpenFlow prints messages up to the first that is wrong, and says how many.
func decodeOpenFlow(stream io.Reader, to io.Writer, numbers bool) (count int, err error) {
	in, out := bufio.NewReaderSize(stream, 1<<16), bufio.NewWriter(to)
	r := openflow.NewReader(in)
	for n := 1; ; n++ {
		if in.Buffered() == 0 { // the next one may take its time
			if err := out.Flush(); err != nil {
				return n - 1, fmt.Errorf("write messages: %w", err)
			}
		}
		b, err := r.Next()
		var m openflow.Message
		if err == nil {
			m, err = openflow.Parse(b)
		}
		if err != nil {
			if writeErr := out.Flush(); writeErr != nil {
				return n - 1, fmt.Errorf("write messages: %w", writeErr)
			}
			return n - 1, messageError(n, r.Offset(), err)
		}
		_, _ = out.Write(append(openflow.Format(m, numbers), '\n')) // Flush has the error
	}
}

// messageError tells where in the file the error is, not where in the message.
// The end of the file is none.
func messageError(n int, begins int64, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	var bad *openflow.Error
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("byte %d (message %d begins at byte %d): %s: %w", begins+int64(bad.Offset), n, begins, bad.What, bad.Err)
}
