export interface TableHeadProps {
  /** The names of the columns, with the class of a column if it has one. */
  readonly columns: readonly (string | readonly [name: string, className: string])[]
}

export const TableHead = ({ columns }: TableHeadProps) => (
  <thead>
    <tr>
      {columns.map((column) => {
        const [name, className] = typeof column === 'string' ? [column] : column
        return (
          <th key={name} scope="col" className={className}>
            {name}
          </th>
        )
      })}
    </tr>
  </thead>
)
