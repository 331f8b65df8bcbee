import { usePageTitle } from '../page-title.ts'
import { Link } from '../parts/link.tsx'
import { Outside } from '../parts/text.tsx'

/** Says that the console has no page at an address. */
export function NoSuchPage({ path }: { readonly path: string }) {
  usePageTitle('No such page')
  return (
    <>
      <h1 tabIndex={-1}>There is no such page</h1>
      <p className="outside">
        The console has no page at <Outside text={path} />. <Link to="/">Open the first page</Link>
      </p>
    </>
  )
}
