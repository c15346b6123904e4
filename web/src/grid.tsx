// A table of text; on a phone, one card a row.

import type { ComponentChildren } from "preact";

export interface Column {
  name: string;
  number?: boolean;
  // text is as long as it is: it has a line of a card to itself.
  text?: boolean;
}

export function Grid(props: { label: string; columns: Column[]; rows: { key: string; cells: ComponentChildren[] }[] }) {
  // Roles are written out, because cards are not displayed as a table.
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={props.label}>
      <table role="table" aria-label={props.label}>
        <thead role="rowgroup">
          <tr role="row">
            {props.columns.map(({ name, number }) => <th role="columnheader" scope="col" key={name} class={number ? "number" : ""}>{name}</th>)}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {props.rows.map(({ key, cells }) => (
            <tr role="row" key={key}>
              {cells.map((cell, i) => i === 0
                ? <th role="rowheader" scope="row" key={i}><span>{cell}</span></th>
                : <td role="cell" key={i} data-label={props.columns[i]?.name} class={props.columns[i]?.number ? "number" : props.columns[i]?.text ? "why text" : ""}>{cell}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
